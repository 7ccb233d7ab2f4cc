"""The computing half of a plan: batches, kernels, sampling. Knows nothing about who waits or why."""

from typing import NamedTuple, Protocol

from parkway.plan.step import Chunk, StepPlan
from parkway.request import TokenLogprob


class Sampled(NamedTuple):
    """What a step found out for one chunk. `token_id` is None unless the chunk samples."""

    token_id: int | None
    logprob: TokenLogprob | None
    scored: list[TokenLogprob]


class Runner(Protocol):
    """Carries out plans. `launch` may return before the step has landed; `results` never waits."""

    logit_rows: int
    """Most rows of one step that may need logits."""

    def launch(self, plan: StepPlan) -> None: ...

    def results(self) -> list[tuple[Chunk, Sampled]]: ...
