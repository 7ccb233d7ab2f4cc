"""What all routes share: the door, the model's text side, and the answers that are open. Knows no route."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

import msgspec

from parkway.api.admission import Admission
from parkway.api.answer import Answer
from parkway.api.chat_ask import ChatAsk
from parkway.api.chats import Chats
from parkway.api.choice import Choice, Prompt
from parkway.api.exchange import CURRENT
from parkway.api.metrics import Metrics
from parkway.api.reading import Reading
from parkway.api.request_defaults import Defaults, template_variables
from parkway.config import AUTO, EngineSettings, ServerSettings
from parkway.engine.door import Door
from parkway.errors import BadRequest, ContextExceeded, ShuttingDown
from parkway.request import Request, SamplingParams
from parkway.text import ModelText
from parkway.text.dialects import dialect_named, dialect_of
from parkway.text.grammar import vocabulary_of
from parkway.text.parts import Dialect

_SEED_BITS = 53
"""A drawn seed survives every JSON parser, JavaScript's too."""
_POLL_SECONDS = 0.02


class Serving:
    """One model being served. `draining`: open answers go on, new ones are refused."""

    def __init__(self, door: Door, text: ModelText, engine_settings: EngineSettings, settings: ServerSettings) -> None:
        self.door = door
        self.text = text.with_template(settings.chat_template, template_variables(settings.defaults))
        self.defaults = Defaults(settings.defaults, text.tokenizer)
        self.engine_settings = engine_settings
        self.settings = settings
        self.model_name = (*settings.aliases, door.facts.model)[0]
        self.metrics = Metrics(self.model_name, lambda: door.snapshot, lambda: door.view, lambda: door.facts)
        self.draining = False
        self._chats = Chats(self.text, _dialect(self.text, settings.tool_call_parser))
        self._admission = Admission(door.facts.slots, settings.max_queue)
        self._answers: dict[Answer, str] = {}
        """Those that are open, with their clients."""
        # Now and not with the first grammar, so that the engine can make its index while nobody is there.
        door.teach(lambda: vocabulary_of(self.text.tokenizer))

    def check_model(self, name: str | None) -> None:
        """Raises BadRequest, a 404, for a model that is not this one. A request need not name any."""
        if name is not None and name not in (*self.settings.aliases, self.door.facts.model):
            message = f"the model {name[:100]!r} does not exist; this server has {self.model_name!r}"
            raise BadRequest("model", message, code="model_not_found", status=404)

    def prompt(self, asked: str | list[int], param: str = "prompt") -> Prompt:
        """`param`: the field that it is from. Raises BadRequest or ContextExceeded if the engine could not take it."""
        tokenizer = self.text.tokenizer
        if isinstance(asked, str):
            plain = tokenizer.encode(asked)
            ids = tokenizer.with_bos(plain)
            return self._checked(Prompt(ids, asked, hidden=len(ids) - len(plain)), param)
        if asked and not 0 <= min(asked) <= max(asked) < tokenizer.vocab_size:
            raise BadRequest(param, f"{param} holds a token id that is not between 0 and {tokenizer.vocab_size - 1}")
        return self._checked(Prompt(asked, tokenizer.decode(asked)), param)

    def _checked(self, prompt: Prompt, param: str) -> Prompt:
        if not prompt.ids:
            raise BadRequest(param, f"{param} is empty")
        if len(prompt.ids) >= (n_ctx := self.door.facts.n_ctx):  # a token of the answer must fit too
            raise ContextExceeded(len(prompt.ids), n_ctx, param)
        if (last := max(prompt.ids)) >= (rows := self.door.facts.vocab_size):
            raise BadRequest(param, f"{param} holds token {last}, and the model's embedding has {rows} rows only")
        return prompt

    async def begin_chat(self, ask: ChatAsk) -> Answer:
        """Submits the choices of a chat. Raises BadRequest, ContextExceeded, Overloaded, ShuttingDown, EngineDied."""
        self._admit(ask.choices)  # again below: others may have come meanwhile
        chat = await self._chats.prepared(ask)
        prompt = self._checked(Prompt(chat.prompt, ""), "messages")
        how = _Beginning(chat.sampling, ask.priority, ask.stop_ids, reading=chat.reading, hidden=chat.hidden)
        return self._begin([prompt], ask.choices, how)

    async def chat_text(self, ask: ChatAsk) -> str:
        """The prompt of a chat before it is cut into tokens. Raises BadRequest."""
        return await self._chats.text_of(ask)

    async def chat_tokens(self, ask: ChatAsk) -> int:
        """How many tokens the prompt of a chat has, even if that are too many. Raises BadRequest."""
        return len((await self._chats.prepared(ask)).prompt)

    def begin(
        self,
        prompts: Sequence[Prompt],
        choices: int,
        sampling: SamplingParams,
        *,
        priority: int = 0,
        stop_ids: Sequence[int] = (),
        echo: bool = False,
    ) -> Answer:
        """Submits `choices` answers for each prompt. `stop_ids` end them too.

        Raises Overloaded, ShuttingDown, EngineDied.
        """
        return self._begin(prompts, choices, _Beginning(sampling, priority, stop_ids, echo=echo))

    def _begin(self, prompts: Sequence[Prompt], choices: int, how: "_Beginning") -> Answer:
        client = self._admit(len(prompts) * choices)
        seed = secrets.randbits(_SEED_BITS) if how.sampling.seed is None else how.sampling.seed
        sampling, stop_ids = how.ends(self.text.tokenizer.stop_ids)
        made = [
            Choice(
                index * choices + choice,
                Request(
                    id=self.door.next_id(),
                    prompt=prompt.ids,
                    sampling=sampling,
                    seed=seed,
                    stop_ids=stop_ids,
                    prompt_index=index,
                    choice_index=choice,
                    priority=how.priority,
                    client=client,
                ),
                self.text.tokenizer,
                echo=prompt if how.echo else None,
                reading=how.reading(),
                hidden=how.hidden,
            )
            for index, prompt in enumerate(prompts)
            for choice in range(choices)
        ]
        answer = Answer(self.door, made, self.metrics)
        answer.submit()
        self._answers[answer] = client
        if (exchange := CURRENT.get()) is not None:
            exchange.answer = answer
        return answer

    def _admit(self, chats: int) -> str:
        """Lets so many chats in, and tells whose they are. Raises ShuttingDown, Overloaded."""
        if self.draining:
            raise ShuttingDown("the server is shutting down")
        exchange = CURRENT.get()
        client = exchange.client if exchange else ""
        open_chats = Counter[str]()
        for answer, whose in self._answers.items():
            open_chats[whose] += answer.open_chats
        self._admission.admit(client, chats, open_chats, self.metrics.finished.total())
        return client

    @property
    def open_requests(self) -> list[Request]:
        """Those of all open answers."""
        return [choice.request for answer in self._answers for choice in answer.choices]

    def leave(self, answer: Answer) -> None:
        self._answers.pop(answer, None)

    async def drain(self, seconds: float) -> None:
        """Takes nothing new, lets what is open finish, and after `seconds` ends the rest with an error."""
        self.draining = True
        await self._wait_until_left(seconds)
        for answer in self._answers:
            answer.cancel(ShuttingDown("the server shut down before the answer was finished"))

    async def _wait_until_left(self, seconds: float) -> None:
        deadline = monotonic() + seconds
        while self._answers and monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)


def _dialect(text: ModelText, name: str) -> Dialect:
    """Raises BadSetting."""
    return dialect_of(text.template.source if text.template else None) if name == AUTO else dialect_named(name)


def _nobody() -> Reading | None:
    return None


@dataclass(frozen=True, slots=True)
class _Beginning:
    """How the answers to some prompts are begun."""

    sampling: SamplingParams
    priority: int
    stop_ids: Sequence[int]
    echo: bool = False
    reading: Callable[[], Reading | None] = _nobody
    hidden: frozenset[int] | None = None

    def ends(self, own: frozenset[int]) -> tuple[SamplingParams, frozenset[int]]:
        """The parameters and the tokens that end an answer: the model's `own` and those that were asked for.

        The engine's `ignore_eos` ignores all of them; the client's means the model's own only.
        """
        if not self.stop_ids:
            return self.sampling, own
        if not self.sampling.ignore_eos:
            return self.sampling, own.union(self.stop_ids)
        return msgspec.structs.replace(self.sampling, ignore_eos=False), frozenset(self.stop_ids)
