"""What an answer's text is made of: what is said, what is thought, which tools are called. Knows no dialect."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from parkway.errors import BadRequest

Kind = Literal["content", "reasoning", "call", "arguments"]


class Part(NamedTuple):
    """A piece of an answer, in order. A `call` begins call number `call` (from 0) of the tool named `text`; pieces of
    its `arguments` follow and concatenate to one JSON object, or to the beginning of one where the answer was cut off
    or went wrong. `call` is -1 of the other kinds."""

    kind: Kind
    text: str
    call: int = -1


class Parser(Protocol):
    """Text in, parts out: the same parts, but for where they are cut, however the text is cut."""

    def push(self, text: str) -> list[Part]:
        """The parts that this text makes safe to tell."""

    def finish(self) -> list[Part]:
        """What was held back. The last call."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters`: the JSON Schema of its arguments, which all calls keep to if
    `strict`, also those that are the model's choice."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = False

    def __post_init__(self) -> None:
        """Raises BadRequest: arguments are an object, whatever else a schema says of them."""
        kind = self.parameters.get("type", "object")
        if kind != "object" and not (isinstance(kind, list) and "object" in kind):
            raise BadRequest("tools", f"tools: the arguments of {self.name} must be of type object, not {kind!r}")


Tools = Mapping[str, Tool]
"""By name."""


class Dialect(Protocol):
    """How a family of models writes thoughts and calls."""

    @property
    def name(self) -> str: ...

    @property
    def shown(self) -> tuple[str, ...]:
        """Texts that its parser must see even where they are special tokens; stop tokens end the answer unseen."""

    @property
    def thought_marks(self) -> tuple[str, ...]:
        """Texts that the chat template of a model that thinks has one of."""

    def parser(self, *, tools: tuple[Tool, ...], thinking: bool) -> Parser:
        """`tools`: those that may be called; without any, no calls are looked for. `thinking`: whether the prompt
        ended within a thought."""

    def within_thought(self, prompt: str) -> bool:
        """Whether this rendered prompt ends within a thought that the answer goes on with."""

    def written_call(self, name: str, arguments: str) -> str:
        """How the model would write this call, the arguments being JSON."""

    def calls(self, tools: tuple[Tool, ...], *, parallel: bool, thinking: bool, special: Mapping[str, int]) -> str:
        """A grammar (llguidance's, serialised) of an answer that calls one of these tools, or several if `parallel`,
        and, where it thinks, a thought before. `special`: those of `shown` that are special tokens of the vocabulary
        that the grammar will be used with, and their ids. Raises BadRequest for a schema that can't be honoured."""

    def held(
        self, tools: tuple[Tool, ...], *, parallel: bool, thinking: bool, special: Mapping[str, int]
    ) -> str | None:
        """A grammar of an answer that may say anything, but whose calls keep to the tools' schemas from their marker
        on; None where no marker tells them from text. The rest as of `calls`."""

    def content(
        self, grammar: str, tools: tuple[Tool, ...], *, parallel: bool, thinking: bool, special: Mapping[str, int]
    ) -> str:
        """A grammar of an answer whose content is of this one, after a thought where it thinks, or that calls tools
        instead. The rest as of `calls`."""
