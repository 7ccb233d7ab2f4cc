"""The bodies of /v1/messages and its count_tokens, and the chat that they ask for. Knows no prompt and no answer."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from parkway.api.anthropic_blocks import Message, Texts, template_messages
from parkway.api.anthropic_tools import CustomTool, ToolChoice, tools_of
from parkway.api.bodies import Body, Text
from parkway.api.chat_ask import ChatAsk
from parkway.api.constraints import Constrained, Constraint, grammar_for
from parkway.api.sampling_fields import MAX_STOP_STRINGS, OTHER_SAMPLERS
from parkway.errors import BadRequest
from parkway.text import Tokenizer

_UNBUILT: dict[str, tuple[Any, ...]] = OTHER_SAMPLERS | {
    "container": (),
    "logprobs": (False,),
    "mcp_servers": ([],),
    "thread": (),
}
"""Fields beside other samplers that can't be honoured: the values, beside null, that ask for nothing."""

_EFFORTS = {"xhigh": "high", "max": "high"}
"""Chat templates know low, medium and high."""

StopSequences = Annotated[list[Annotated[Text, Field(min_length=1)]], Field(max_length=MAX_STOP_STRINGS)]


class Thinking(Body):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=0)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Body):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class CountBody(Constrained):
    """A chat whose tokens are counted: all of a request for an answer, which may lack what only an answer needs."""

    messages: Annotated[list[Message], Field(min_length=1)]
    system: Texts = Field(default_factory=list)
    tools: list[CustomTool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    stop: StopSequences | None = Field(default=None, alias="stop_sequences")

    @property
    def tells_thoughts(self) -> bool:
        """Whether their text is told, and not only that there are any."""
        return self.thinking is None or self.thinking.display != "omitted"

    def limit(self) -> tuple[str, int | None]:
        return "max_tokens", self.max_tokens

    async def ask(self, tokenizer: Tokenizer) -> ChatAsk:
        """The chat. Raises BadRequest naming the field."""
        self.refuse(_UNBUILT)
        if self.n is not None and self.n > 1:
            raise BadRequest("n", "n is not supported: a message has one answer")
        tools, choice = tools_of(self.tools or ()), self.tool_choice
        must = choice.within(tools) if choice else "auto"
        constraint = self.constraint()
        if constraint and tools and must != "none":
            raise BadRequest(
                constraint.param, f"{constraint.param}: can't be combined with tools; send tool_choice none"
            )
        messages = template_messages(self.system, self.messages)
        goes_on = _goes_on(messages)
        return ChatAsk(
            messages=messages,
            sampling=await self.sampled(tokenizer),
            priority=self.priority or 0,
            tools=tools,
            tool_choice=must,
            parallel_calls=not (choice and choice.disable_parallel_tool_use),
            grammar=await grammar_for(constraint),
            stop_ids=self.stop_ids(tokenizer),
            variables=self._variables(),
            add_generation_prompt=not goes_on,
            continue_final=goes_on,
        )

    def _constraints(self) -> Iterator[Constraint]:
        """`output_format` is what output_config.format was called in its beta."""
        if self.output_config is not None and self.output_config.format is not None:
            yield Constraint("json_schema", self.output_config.format.schema_, "output_config.format.schema")
        elif self.output_format is not None:
            yield Constraint("json_schema", self.output_format.schema_, "output_format.schema")
        yield from super()._constraints()

    def _variables(self) -> dict[str, Any]:
        """What the template is told beside messages and tools."""
        told: dict[str, Any] = {}
        if self.thinking is not None:
            told["enable_thinking"] = self.thinking.type != "disabled"
        if self.output_config is not None and (effort := self.output_config.effort):
            told["reasoning_effort"] = _EFFORTS.get(effort, effort)
        return told


class MessagesBody(CountBody):
    max_tokens: Annotated[int, Field(ge=0)]


def _goes_on(messages: list[dict[str, Any]]) -> bool:
    """Whether the answer goes on with the last message. Raises BadRequest if that ends in a call."""
    last = messages[-1] if messages else {}
    if "tool_calls" in last:
        raise BadRequest("messages", "messages: a tool_use block must be followed by a message with its tool_result")
    return last.get("role") == "assistant"
