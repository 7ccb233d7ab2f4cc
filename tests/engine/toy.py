"""A model without arithmetic: its next token is a hash of all earlier ids, read back from a toy KV, and of its edits.

Lost KV shows, and so does a history that is not the chat's own.
"""

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from parkway.backends import Rings
from parkway.config import EngineSettings
from parkway.engine.engine import Engine
from parkway.errors import BadFile
from parkway.plan.copies import Copy
from parkway.plan.limits import Knobs, Limits
from parkway.plan.step import PAGE_TOKENS, PENDING, Chunk, StepPlan
from parkway.report import Facts
from parkway.request import Output, Request, SamplingParams, TokenLogprob
from parkway.runner import NOTHING_ALLOWED, Sampled
from parkway.runner.edits import NO_EDITS, Editor, Edits

VOCAB_SIZE = 89
STOP_ID = 88
FACTORY = "tests.engine.toy:build_toy"

Rows = dict[tuple[int, int], tuple[int, int]]
"""The id and position last written to (page, offset)."""
Answer = tuple[list[int], list[TokenLogprob], list[TokenLogprob], str | None]


PARKS: dict[str, dict[str, Any]] = {
    "not parked": {},
    "copied": {"host_pages": 64, "knobs": Knobs(park_every=5, forget=True)},
    "computed again": {"host_pages": 0, "knobs": Knobs(park_every=5, forget=True)},
}
"""Limits of a toy engine, by what becomes of its chats every few tokens."""


class ToyRunner:
    """Computes a step when it lands, which is `ahead` steps late, or when a copy is waited for. `kv` has the id and
    position last written to (page, offset), `last_tokens` what was sampled last in a slot: the token that a PENDING
    stands for."""

    pages = 16
    pool_bytes = 16
    page_bytes = 1
    embedding_width = 2
    state_bytes = ring_bytes = checkpoint_bytes = 0
    checkpoints: int | None = None
    rings: Rings | None = None
    n_ctx = 512
    buffer_bytes = 0
    batch_tokens = 64
    exact = True
    bit_check: str | None = None

    def __init__(
        self, logit_rows: int = 64, seconds: float = 0.0, ahead: int = 0, *, draws_again: bool = False
    ) -> None:
        self.again: Callable[[Chunk, Edits], Sampled] | None = self._again if draws_again else None
        self.logit_rows = logit_rows
        self.ahead = ahead
        self.seconds = seconds
        self.kv: dict[tuple[int, int], tuple[int, int]] = {}
        self.last_tokens: dict[int, int] = {}
        self.launched = self.landed = 0
        self._in_flight: deque[StepPlan] = deque()
        self._edits: deque[Mapping[int, Edits]] = deque()
        self._results: deque[list[tuple[Chunk, Sampled]]] = deque()

    def copies(self, most_bytes: int, *, beside: bool) -> "ToyCopies":
        return ToyCopies(self, most_bytes, late=3 if beside else 0)

    def launch(self, plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
        assert plan.chunks, "a step without chunks"
        assert edits.keys() <= {chunk.slot for chunk in plan.chunks if chunk.samples}, "edits for nobody"
        self._edits.append(edits)
        self.launched += 1
        self._in_flight.append(plan)
        assert len(self._in_flight) <= self.ahead + 1, "too many steps in flight"

    def land(self) -> list[tuple[Chunk, Sampled]]:
        time.sleep(self.seconds)
        if not self._results:
            self._run(self._in_flight[0])
        self._in_flight.popleft()
        return self._results.popleft()

    def run(self) -> None:
        """Computes all that has been launched."""
        for plan in list(self._in_flight)[len(self._results) :]:
            self._run(plan)

    def _run(self, plan: StepPlan) -> None:
        edits = self._edits.popleft()
        for chunk in plan.chunks:
            self._write(chunk)
        self.landed += 1
        self._results.append([(chunk, self._compute(chunk, edits.get(chunk.slot))) for chunk in plan.chunks])

    def _write(self, chunk: Chunk) -> None:
        for position, token_id in enumerate(chunk.tokens, chunk.start):
            page, offset = divmod(position, PAGE_TOKENS)
            known = self.last_tokens[chunk.slot] if token_id == PENDING else token_id
            self.kv[chunk.pages[page], offset] = known, position

    def _compute(self, chunk: Chunk, edits: Edits | None) -> Sampled:
        prompt, sampling = chunk.request.prompt, chunk.request.sampling
        if sampling.embed:
            rows = [hidden(self._read(chunk, chunk.start + row + 1)) for row in chunk.scored_rows]
            return Sampled(None, None, [], np.array(rows, np.float32).reshape(-1, self.embedding_width))
        scored = [
            _scored(self._read(chunk, end), prompt[end]) for end in (chunk.start + r + 1 for r in chunk.scored_rows)
        ]
        if not chunk.samples:
            return Sampled(None, None, scored)
        seen = self._read(chunk, chunk.end)
        token_id = next_token(seen, chunk.request.seed, edits)
        self.last_tokens[chunk.slot] = max(token_id, 0)
        return Sampled(token_id, None if sampling.logprobs is None else _scored(seen, token_id), scored)

    def _again(self, chunk: Chunk, edits: Edits) -> Sampled:
        assert not self._in_flight, "logits that another step has written over"
        seen = self._read(chunk, chunk.end)
        token_id = next_token(seen, chunk.request.seed + 1, edits)
        self.last_tokens[chunk.slot] = max(token_id, 0)
        return Sampled(token_id, None if chunk.request.sampling.logprobs is None else _scored(seen, token_id), [])

    def _read(self, chunk: Chunk, end: int) -> list[int]:
        cells = [self.kv[chunk.pages[p // PAGE_TOKENS], p % PAGE_TOKENS] for p in range(end)]
        assert [position for _, position in cells] == list(range(end)), "KV of another position"
        return [token_id for token_id, _ in cells]


@dataclass
class ToyCopies:
    """Copies as late as they may be: when they are reported, `late` steps after their submission."""

    runner: ToyRunner
    pages: int
    late: int = 3
    page_bytes: int = 1
    held_bytes: int = 0
    submitted: int = 0
    _rows: Rows = field(default_factory=dict)
    _open: list[tuple[Copy, int, int]] = field(default_factory=list)
    _steps: int = 0

    def submit(self, copy: Copy) -> None:
        self.submitted += 1
        self.held_bytes = self.pages
        self._open.append((copy, self.runner.launched, self._steps))

    def advance(self) -> None:
        self._steps += 1

    def landed(self) -> list[Copy]:
        return self._perform([each for each in self._open if self._is_due(*each)])

    def wait(self) -> None:
        self._steps += self.late

    def _is_due(self, copy: Copy, launched: int, steps: int) -> bool:
        waits = copy.settled < len(copy.sources)
        return self._steps >= steps + self.late and (self.runner.landed >= launched or not waits)

    def drain(self) -> list[Copy]:
        self.runner.run()
        return self._perform(self._open.copy())

    def make_ready(self) -> None:
        pass

    def reserve(self) -> None:
        pass

    def release(self) -> None:
        assert not self._open, "somebody's pages are on their way"
        self._rows.clear()
        self.held_bytes = 0

    def _perform(self, due: list[tuple[Copy, int, int]]) -> list[Copy]:
        for each in due:
            self._open.remove(each)
            source = self._rows if each[0].from_host else self.runner.kv
            target = self._rows if each[0].to_host else self.runner.kv
            for pages in zip(each[0].sources, each[0].targets, strict=True):
                _copy_rows(source, target, *pages)
        return [copy for copy, _, _ in due]


def _copy_rows(source: Rows, target: Rows, page: int, to: int) -> None:
    for offset in range(PAGE_TOKENS):
        target.pop((to, offset), None)
        if (page, offset) in source:
            target[to, offset] = source[page, offset]


def next_token(seen: list[int], seed: int, edits: Edits | None = None) -> int:
    """Some other token for every other edits; none if they forbid all."""
    token_id = crc32(bytes(seen), seed & 0xFFFFFFFF)
    if edits is None:
        return token_id % VOCAB_SIZE
    moved = np.tile(np.array([[1], [1], [0]], np.float32), VOCAB_SIZE)
    moved[:, edits.ids] = edits[1:4]
    if edits.mask is not None:
        bits = np.unpackbits(edits.mask.view(np.uint8), bitorder="little")[:VOCAB_SIZE]
        moved[2, bits == 0] = -np.inf
    allowed = np.flatnonzero(np.isfinite(moved[2])).tolist()
    return allowed[crc32(moved.tobytes(), token_id) % len(allowed)] if allowed else NOTHING_ALLOWED


def hidden(seen: list[int]) -> tuple[float, float]:
    """Numbers of which the order of a sum shows in its bits: large ones that cancel out, small ones between."""
    large, small = 2.0**70, crc32(bytes(seen)) / 7
    return (large, -large, small)[len(seen) % 3], small


def _scored(seen: list[int], token_id: int) -> TokenLogprob:
    return TokenLogprob(len(seen), token_id, -(crc32(bytes(seen)) / 2**32), [])


def expected(request: Request, n_ctx: int) -> Answer:
    """What the toy model answers, computed without an engine."""
    seen, sampling = list(request.prompt), request.sampling
    prompt_logprobs = (
        [] if sampling.prompt_logprobs is None else [_scored(seen[:i], seen[i]) for i in range(1, len(seen))]
    )
    most = n_ctx - len(seen) if sampling.max_tokens is None else min(sampling.max_tokens, n_ctx - len(seen))
    tokens: list[int] = []
    logprobs: list[TokenLogprob] = []
    while len(tokens) < most:
        tokens.append(next_token(seen, request.seed, Editor(request, VOCAB_SIZE).edits(seen, len(seen), None)))
        if sampling.logprobs is not None:
            logprobs.append(_scored(seen, tokens[-1]))
        seen.append(tokens[-1])
        if tokens[-1] in request.stop_ids and not sampling.ignore_eos:
            return tokens, logprobs, prompt_logprobs, "stop"
    return tokens, logprobs, prompt_logprobs, "length"


def joined(outputs: Iterable[Output]) -> Answer:
    """The outputs of one request as one answer; checks that only the last ends it."""
    outputs = list(outputs)
    assert [output.finish_reason for output in outputs[:-1]] == [None] * (len(outputs) - 1)
    return (
        [token_id for output in outputs for token_id in output.token_ids],
        [logprob for output in outputs for logprob in output.logprobs],
        [logprob for output in outputs for logprob in output.prompt_logprobs],
        outputs[-1].finish_reason,
    )


def make_request(request_id: int, length: int = 10, **sampling: Any) -> Request:
    prompt = [(request_id * 7 + i * 13) % VOCAB_SIZE for i in range(length)]
    params = SamplingParams(**sampling)
    return Request(id=request_id, prompt=prompt, sampling=params, seed=request_id, stop_ids=frozenset({STOP_ID}))


def outputs_of(engine: Engine, requests: list[Request]) -> dict[int, list[Output]]:
    """What comes of some requests, notices aside."""
    outputs: dict[int, list[Output]] = defaultdict(list)
    for request in requests:
        engine.arrive(request)
    while not engine.idle:
        report = engine.step()
        for output in report.outputs if report else ():
            if not output.notice:
                outputs[output.request_id].append(output)
    return outputs


def make_toy(given_runner: ToyRunner | None = None, /, **limits: Any) -> Engine:
    """An engine on a toy runner; `limits` are fields of Limits."""
    runner = given_runner or ToyRunner()
    of_runner = {name: getattr(runner, name) for name in ("pages", "batch_tokens", "logit_rows", "ahead")}
    given: dict[str, Any] = {"slots": 4, "n_ctx": 512, **of_runner, **limits}
    facts = Facts(
        model="toy",
        n_ctx=given["n_ctx"],
        slots=given["slots"],
        vocab_size=VOCAB_SIZE,
        fingerprint="toy",
        weight_bytes=0,
        pool_bytes=0,
        embedding_width=runner.embedding_width,
    )
    return Engine(runner, Limits(**given), facts, runner.copies(given.get("host_pages", 0), beside=True))


def build_toy(path: Path, settings: EngineSettings) -> Engine:
    """For engine processes: the file's name chooses what the toy does."""
    if path.name == "missing":
        raise BadFile(path, "there is no such file")
    if path.name == "crash":
        os._exit(7)
    if path.name == "hang":
        time.sleep(600)
    runner = (
        BrokenRunner() if path.name == "broken" else ToyRunner(seconds=0.01 if path.name == "slow" else 0.0, ahead=1)
    )
    return make_toy(runner, slots=settings.parallel)


class BrokenRunner(ToyRunner):
    """Fails at its third step."""

    steps = 0

    def launch(self, plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
        self.steps += 1
        if self.steps == 3:
            raise RuntimeError("planted")
        super().launch(plan, edits)
