"""The computing half of a plan: batches, kernels, sampling. Knows nothing about who waits or why."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from parkway.backends import Rings
from parkway.memory.copies import Copies
from parkway.plan.step import Chunk, StepPlan
from parkway.request import TokenLogprob
from parkway.runner.edits import NO_EDITS, Edits

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: their reciprocal leaves the range of fp32."""


NOTHING_ALLOWED = -1
"""In place of a token where the edits of a chunk leave none that may be chosen."""
NOT_FINITE = -2
"""In place of a token, chosen or looked up, of a row whose largest logit is not a finite number. NaN counts as -inf."""


class Sampled(NamedTuple):
    """What a step found out for one chunk. `token_id` is None unless the chunk samples; it may be NOTHING_ALLOWED or
    NOT_FINITE, which `scored` may hold too."""

    token_id: int | None
    logprob: TokenLogprob | None
    scored: list[TokenLogprob]
    hidden: npt.NDArray[np.float32] | None = None
    """[scored rows, width] of a request for an embedding: what the output matrix would be multiplied with."""
    surprise: float | None = None
    """Of a token that mirostat has chosen, in bits, among those that it left; of another it may say nothing."""

    @property
    def finite(self) -> bool:
        """Whether there was a number wherever one was wanted."""
        if self.token_id == NOT_FINITE or (self.hidden is not None and not np.isfinite(self.hidden).all()):
            return False
        return not self.scored or all(each.token_id != NOT_FINITE for each in self.scored)


class Runner(Protocol):
    """Carries out plans in their order. A step is in flight from its launch until its results have been taken."""

    @property
    def pages(self) -> int:
        """Of the pool."""

    @property
    def n_ctx(self) -> int:
        """Most tokens, prompt and answer, of one chat."""

    @property
    def pool_bytes(self) -> int: ...

    @property
    def buffer_bytes(self) -> int:
        """What steps are computed in, beside the weights, the pool and the states."""

    @property
    def state_bytes(self) -> int:
        """Of what slots keep beside pages, and of the checkpoints of that: the next two among it."""

    @property
    def ring_bytes(self) -> int: ...

    @property
    def checkpoint_bytes(self) -> int:
        """Of those, the checkpoints'."""

    @property
    def page_bytes(self) -> int: ...

    @property
    def batch_tokens(self) -> int:
        """Most rows of one step."""

    @property
    def logit_rows(self) -> int:
        """Most rows of one step that may need logits."""

    @property
    def embedding_width(self) -> int:
        """Numbers of a hidden state."""

    @property
    def checkpoints(self) -> int | None:
        """Of what chats leave behind in their slots, states or rings. None where they leave pages only."""

    @property
    def rings(self) -> Rings | None:
        """Where layers that see a window have pages of their own; no chunk has more rows than these say."""

    @property
    def ahead(self) -> int:
        """Steps that may be in flight when the next is launched."""

    @property
    def exact(self) -> bool:
        """Whether a row's bits depend on nothing but itself."""

    @property
    def bit_check(self) -> str | None:
        """What the check of that found, where there is one."""

    def launch(self, plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
        """Begins a step that has chunks. May return before it has run.

        `edits`, by slot: what to change about the logits before a chunk's token is chosen.
        """

    def land(self) -> list[tuple[Chunk, Sampled]]:
        """Waits for the oldest step in flight; returns what it found out, in its plan's order."""

    @property
    def again(self) -> "Callable[[Chunk, Edits], Sampled] | None":
        """Chooses the token of a chunk of the step that landed last once more: with these edits, and with the second
        number of its randomness. None where logits don't outlive their step."""

    def copies(self, most_bytes: int, *, beside: bool) -> Copies:
        """Copies between the pool and host pages that take at most so many bytes.

        `beside`: while steps run; otherwise each has landed when `submit` returns.
        """
