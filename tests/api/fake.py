"""A door without an engine, which answers from a script, and a text side whose tokens are single bytes."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from parkway.engine.door import Sink
from parkway.errors import EngineDied
from parkway.report import Facts, Snapshot, View
from parkway.request import Notice, Output, Preempt, Request, TokenLogprob, Vocabulary
from parkway.text import ModelText
from parkway.text.tokenizer import _byte_characters

N_CTX = 256
EOS = 256
FINGERPRINT = "fp-toy"
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
)


def byte_text(
    template: str = TEMPLATE, special: Sequence[str] = (), more: Mapping[str, Any] = MappingProxyType({})
) -> ModelText:
    """Token i is the byte i; EOS is 256; further special tokens follow it. `more` metadata of an architecture `toy`."""
    characters = {ord(byte): character for character, byte in _reversed_bytes().items()}
    metadata = {
        "general.architecture": "toy",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*(characters[i] for i in range(256)), "<|im_end|>", *special],
        "tokenizer.ggml.token_type": [1] * 256 + [3] * (1 + len(special)),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.chat_template": template,
        **more,
    }
    return ModelText.from_metadata(metadata, "toy")


def _reversed_bytes() -> dict[str, str]:
    return {chr(code): byte for code, byte in _byte_characters().items()}


@dataclass
class _Open:
    request: Request
    sink: Sink
    script: list[int]
    cached_tokens: int
    sent: int = 0


class FakeDoor:
    """Every request gets the same answer, a token in each step. Steps by itself, or by `step` if `paced`.

    `preempt` is what the last output of each tells.
    The requests find as many tokens of their prompts as `cached` says, in the order in which they come; then none.
    """

    def __init__(
        self,
        answer: str | bytes | list[int] = "Hello, world!",
        *,
        paced: bool = False,
        seconds: float = 0,
        cached: Sequence[int] = (),
        preempt: Preempt | None = None,
    ) -> None:
        self.facts = Facts(
            model="toy",
            n_ctx=N_CTX,
            slots=4,
            vocab_size=512,
            fingerprint=FINGERPRINT,
            weight_bytes=1,
            pool_bytes=2,
            state_bytes=20,
            checkpoint_bytes=24,
            host_bytes=3,
        )
        self.snapshot = Snapshot(
            running=1,
            waiting=2,
            pages_used=3,
            pages_total=4,
            prompt_tokens=5,
            answer_tokens=6,
            cached_tokens=3,
            parked=7,
            parks=8,
            resumes=9,
            recomputes=10,
            parked_bytes=11,
            host_bytes=12,
        )
        self.view = View()
        self.died: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.watch: Callable[[View], object] = lambda view: None
        self.closed = False
        self.asked: list[Request] = []
        self.cancelled: list[int] = []
        self.taught: Vocabulary | None = None
        self.open: dict[int, _Open] = {}
        self._answer = list(answer.encode() if isinstance(answer, str) else answer)
        self._paced = paced
        self._seconds = seconds
        self._cached = iter(cached)
        self._preempt = preempt or Preempt()
        self._ids = itertools.count()
        self._stepping: asyncio.Task[None] | None = None

    def next_id(self) -> int:
        return next(self._ids)

    def teach(self, vocabulary: Callable[[], Vocabulary]) -> None:
        self.taught = self.taught or vocabulary()

    def submit(self, request: Request, sink: Sink) -> None:
        if self.died.done():
            raise EngineDied(self.died.result())
        self.asked.append(request)
        self.open[request.id] = _Open(request, sink, [*self._answer, EOS], next(self._cached, 0))
        if not self._paced and (self._stepping is None or self._stepping.done()):
            self._stepping = asyncio.create_task(self._step_on())

    def cancel(self, request_id: int) -> None:
        if self.open.pop(request_id, None):
            self.cancelled.append(request_id)

    def close(self) -> None:
        self.closed = True
        if self._stepping is not None:
            self._stepping.cancel()

    async def gone(self) -> None:
        assert self.closed

    def step(self, tokens: int = 1) -> None:
        """Gives every open request its next tokens in one output."""
        for opened in list(self.open.values()):
            self._put(opened, tokens)

    def notify(self, state: str, request_id: int = 0, ahead: int = 0, waited_ms: int = 0) -> None:
        self.open[request_id].sink(Output(request_id, notice=Notice(state, ahead, waited_ms)))

    def die(self, sentence: str = "the engine process was killed by SIGKILL") -> None:
        opened, self.open = self.open, {}
        for request_id, each in opened.items():
            each.sink(Output(request_id, finish_reason="error", error=sentence, died=True))
        self.died.set_result(sentence)

    async def _step_on(self) -> None:
        while self.open:
            await asyncio.sleep(self._seconds)
            self.step()

    def _put(self, opened: _Open, tokens: int) -> None:
        request, sampling = opened.request, opened.request.sampling
        limit = N_CTX if sampling.max_tokens is None else sampling.max_tokens
        ids = opened.script[opened.sent : min(opened.sent + tokens, limit)]
        first, opened.sent = opened.sent, opened.sent + len(ids)
        position = len(request.prompt) + first
        rows = [] if sampling.logprobs is None else scored(ids, position, sampling.logprobs)
        wanted = sampling.prompt_logprobs
        prompt_rows = [] if wanted is None or first else scored(request.prompt, 0, wanted)[1:]
        reason = "stop" if ids and ids[-1] == EOS else "length" if opened.sent >= limit else None
        if reason:
            del self.open[request.id]
        cached_tokens = 0 if first else opened.cached_tokens
        preempt = self._preempt if reason else Preempt()
        opened.sink(Output(request.id, ids, rows, prompt_rows, reason, cached_tokens=cached_tokens, preempt=preempt))


def scored(ids: list[int], start: int, top: int) -> list[TokenLogprob]:
    """Made-up rows: a token's log-probability is a function of its id, the most probable are A, B, C …"""
    best = [(ord("A") + i, -0.5 - i) for i in range(top)]
    return [TokenLogprob(start + i, token_id, -token_id / 64, best) for i, token_id in enumerate(ids)]
