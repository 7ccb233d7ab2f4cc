"""The computing half of a plan: batches, kernels, sampling. Knows nothing about who waits or why."""

from typing import NamedTuple, Protocol

from parkway.memory.copies import Copies
from parkway.plan.step import Chunk, StepPlan
from parkway.request import TokenLogprob

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: their reciprocal leaves the range of fp32."""


class Sampled(NamedTuple):
    """What a step found out for one chunk. `token_id` is None unless the chunk samples."""

    token_id: int | None
    logprob: TokenLogprob | None
    scored: list[TokenLogprob]


class Runner(Protocol):
    """Carries out plans in their order. A step is in flight from its launch until its results have been taken."""

    @property
    def pages(self) -> int:
        """Of the pool."""

    @property
    def pool_bytes(self) -> int: ...

    @property
    def page_bytes(self) -> int: ...

    @property
    def batch_tokens(self) -> int:
        """Most rows of one step."""

    @property
    def logit_rows(self) -> int:
        """Most rows of one step that may need logits."""

    @property
    def ahead(self) -> int:
        """Steps that may be in flight when the next is launched."""

    @property
    def exact(self) -> bool:
        """Whether a row's bits depend on nothing but itself."""

    @property
    def bit_check(self) -> str | None:
        """What the check of that found, where there is one."""

    def launch(self, plan: StepPlan) -> None:
        """Begins a step that has chunks. May return before it has run."""

    def land(self) -> list[tuple[Chunk, Sampled]]:
        """Waits for the oldest step in flight; returns what it found out, in its plan's order."""

    def copies(self, most_bytes: int, *, beside: bool) -> Copies:
        """Copies between the pool and host pages that take at most so many bytes.

        `beside`: while steps run; otherwise each has landed when `submit` returns.
        """
