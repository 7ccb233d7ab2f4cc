"""An engine in this process, stepped synchronously. Knows no door, no text and no clock but its own."""

import itertools
import os
import random
from time import perf_counter

from parkway.bench.figures import ANSWER_TOKENS, PROMPT_TOKENS, SPARE_TOKENS, Timed
from parkway.engine.engine import Engine
from parkway.request import Request, SamplingParams


class EngineSubject:
    """A `Subject`. Its times hold everything that a step costs: plan, kernels, sampling, report."""

    def __init__(self, engine: Engine) -> None:
        self.pids = (os.getpid(),)
        self._engine = engine
        self._ids = itertools.count()
        self._random = random.Random(0)
        self._given: dict[int, int] = {}
        """Answer tokens so far of each open stream."""

    def prefill(self, tokens: int, seconds: float) -> Timed:
        self._leave()
        started, passes = perf_counter(), 0
        while not passes or perf_counter() - started < seconds:
            self._arrive(tokens, 1)
            while not self._engine.idle:
                self._engine.step()
            passes += 1
        return Timed(passes * tokens, perf_counter() - started)

    def ready(self, streams: int, answer_tokens: int) -> None:
        if len(self._given) == streams and self._left >= answer_tokens:
            return
        self._leave()
        for _ in range(streams):
            self._given[self._arrive(PROMPT_TOKENS, ANSWER_TOKENS + SPARE_TOKENS)] = 0
        while not all(self._given.values()):
            self._step()

    def decode(self, seconds: float) -> Timed:
        started, tokens = perf_counter(), 0
        while not tokens or (self._left and perf_counter() - started < seconds):
            tokens += self._step()
        return Timed(tokens, perf_counter() - started)

    @property
    def _left(self) -> int:
        return ANSWER_TOKENS + SPARE_TOKENS - 1 - max(self._given.values())

    def _step(self) -> int:
        """One step of the streams; returns how many tokens it gave."""
        report = self._engine.step()
        assert report is not None, "the streams have ended"
        for output in report.outputs:
            self._given[output.request_id] += len(output.token_ids)
        return sum(len(output.token_ids) for output in report.outputs)

    def _arrive(self, tokens: int, answer_tokens: int) -> int:
        prompt = self._random.choices(range(self._engine.facts.vocab_size), k=tokens)
        how = SamplingParams(max_tokens=answer_tokens, temperature=0.0, ignore_eos=True)
        request = Request(id=next(self._ids), prompt=prompt, sampling=how, seed=0)
        self._engine.arrive(request)
        return request.id

    def _leave(self) -> None:
        for request_id in self._given:
            self._engine.cancel(request_id)
        self._given = {}
        while not self._engine.idle:
            self._engine.step()
