"""A model without arithmetic whose runners behave like a GPU's: a step is in flight while the next is planned."""

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import structs

from parkway.config import EngineSettings, Switch
from parkway.plan.step import PAGE_TOKENS, Chunk, StepPlan
from parkway.runner import Sampled
from parkway.runner.edits import NO_EDITS, Edits
from parkway.runner.fit import RingUse
from tests.engine.toy import VOCAB_SIZE, ToyCopies, ToyRunner

Fault = Callable[[StepPlan, Chunk, Switch], bool]
"""Whether a chunk of a step gets another last bit, with graphs on or off."""


class ToyGpuRunner(ToyRunner):
    """A `Runner`. `plans` gets every step."""

    pool_bytes = 0
    page_bytes = 2**18  # a few in a MiB
    exact = True
    bit_check: str | None = None

    def __init__(self, settings: EngineSettings, plans: list[StepPlan], fault: Fault | None) -> None:
        super().__init__(ahead=1)
        self.slots = settings.parallel
        self.pages = settings.ctx_size // PAGE_TOKENS
        self.batch_tokens = settings.batch_size or 4096
        self.graphs = settings.cuda_graphs
        self.plans = plans
        self._fault = fault

    def copies(self, most_bytes: int, *, beside: bool) -> ToyCopies:
        return super().copies(most_bytes // self.page_bytes, beside=beside)

    def launch(self, plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
        slots = {chunk.slot for chunk in plan.chunks}
        assert len(slots) == len(plan.chunks), "a slot twice in a step"
        assert max(slots) < self.slots, "a slot that is not there"
        assert max(page for chunk in plan.chunks for page in chunk.pages) < self.pages, "a page that is not there"
        assert sum(len(chunk.tokens) for chunk in plan.chunks) <= self.batch_tokens, "too many rows"
        self.plans.append(plan)
        super().launch(plan, edits)

    def land(self) -> list[tuple[Chunk, Sampled]]:
        plan = self._in_flight[0]
        return [(chunk, self._faulty(plan, chunk, sampled)) for chunk, sampled in super().land()]

    def _faulty(self, plan: StepPlan, chunk: Chunk, sampled: Sampled) -> Sampled:
        known = sampled.logprob
        if known is None or self._fault is None or not self._fault(plan, chunk, self.graphs):
            return sampled
        near = np.nextafter(np.float32(known.logprob), np.float32(0))
        return sampled._replace(logprob=structs.replace(known, logprob=float(near)))


class ToyGpuModel:
    """A `Model`. `runners` are those that were made, `plans` the steps of all, both in order."""

    name, vocab_size, fingerprint, weight_bytes, window = "toy", VOCAB_SIZE, "fp_toy", 0, 0

    def __init__(self, fault: Fault | None = None) -> None:
        self.runners: list[ToyGpuRunner] = []
        self.plans: list[StepPlan] = []
        self._fault = fault

    def runner(
        self, settings: EngineSettings, chunk_tokens: int | None = None, rings: RingUse = "saving"
    ) -> ToyGpuRunner:
        self.runners.append(ToyGpuRunner(settings, self.plans, self._fault))
        return self.runners[-1]
