"""What all routes share: the door, the model's text side, and the answers that are open. Knows no route."""

import asyncio
import secrets
from collections.abc import Sequence
from time import monotonic
from typing import Any

from parkway.api.answer import Answer, Choice, Prompt
from parkway.api.metrics import Metrics
from parkway.config import EngineSettings, ServerSettings
from parkway.engine.door import Door
from parkway.errors import BadRequest, ContextExceeded, ShuttingDown
from parkway.request import Request, SamplingParams
from parkway.text import ModelText

_SEED_BITS = 53
"""A drawn seed survives every JSON parser, JavaScript's too."""
_POLL_SECONDS = 0.02


class Serving:
    """One model being served. `draining`: open answers go on, new ones are refused."""

    def __init__(self, door: Door, text: ModelText, engine_settings: EngineSettings, settings: ServerSettings) -> None:
        self.door = door
        self.text = text
        self.engine_settings = engine_settings
        self.settings = settings
        self.model_name = settings.alias or door.facts.model
        self.metrics = Metrics(self.model_name, lambda: door.snapshot, lambda: door.view)
        self.draining = False
        self._answers: set[Answer] = set()

    def check_model(self, name: str | None) -> None:
        """Raises BadRequest, a 404, for a model that is not this one. A request need not name any."""
        if name is not None and name not in (self.model_name, self.door.facts.model):
            message = f"the model {name[:100]!r} does not exist; this server has {self.model_name!r}"
            raise BadRequest("model", message, code="model_not_found", status=404)

    def chat_prompt(self, messages: Sequence[dict[str, Any]]) -> Prompt:
        """Raises BadRequest or ContextExceeded if there is no prompt for them that the engine could take."""
        try:
            ids = self.text.chat_prompt(messages)
        except BadRequest as failure:
            failure.param = failure.param or "messages"
            raise
        return self._checked(Prompt(ids, ""), "messages")

    def prompt(self, asked: str | list[int]) -> Prompt:
        """Raises BadRequest or ContextExceeded if the engine could not take it."""
        tokenizer = self.text.tokenizer
        if isinstance(asked, str):
            plain = tokenizer.encode(asked)
            ids = tokenizer.with_bos(plain)
            return self._checked(Prompt(ids, asked, hidden=len(ids) - len(plain)), "prompt")
        if min(asked) < 0 or max(asked) >= tokenizer.vocab_size:
            raise BadRequest("prompt", f"prompt holds a token id that is not between 0 and {tokenizer.vocab_size - 1}")
        return self._checked(Prompt(asked, tokenizer.decode(asked)), "prompt")

    def _checked(self, prompt: Prompt, param: str) -> Prompt:
        if not prompt.ids:
            raise BadRequest(param, f"{param} is empty")
        if len(prompt.ids) >= (n_ctx := self.door.facts.n_ctx):  # a token of the answer must fit too
            raise ContextExceeded(len(prompt.ids), n_ctx, param)
        return prompt

    def begin(
        self, prompts: Sequence[Prompt], choices: int, sampling: SamplingParams, *, priority: int, echo: bool
    ) -> Answer:
        """Submits `choices` answers for each prompt. Raises ShuttingDown, EngineDied."""
        if self.draining:
            raise ShuttingDown("the server is shutting down")
        seed = secrets.randbits(_SEED_BITS) if sampling.seed is None else sampling.seed
        made = [
            Choice(
                index * choices + choice,
                Request(
                    id=self.door.next_id(),
                    prompt=prompt.ids,
                    sampling=sampling,
                    seed=seed,
                    stop_ids=self.text.tokenizer.stop_ids,
                    prompt_index=index,
                    choice_index=choice,
                    priority=priority,
                ),
                self.text.tokenizer,
                prompt if echo else None,
            )
            for index, prompt in enumerate(prompts)
            for choice in range(choices)
        ]
        answer = Answer(self.door, made, self.metrics)
        answer.submit()
        self._answers.add(answer)
        return answer

    def leave(self, answer: Answer) -> None:
        self._answers.discard(answer)

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
