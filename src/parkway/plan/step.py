"""The plan of one step: plain numbers that runner and memory carry out. Knows nothing about how it was decided."""

import msgspec

from parkway.plan.copies import Copy
from parkway.request import Request

PAGE_TOKENS = 64

PENDING = -1
"""Stands for the token that the chat's previous chunk samples, while the host does not know it yet."""


class Chunk(msgspec.Struct, frozen=True):
    """Some consecutive tokens of one chat, all computed in one step (prefill, decode and replay alike).

    `tokens[i]` sits at position `start + i`. `pages[p]` is the pool page of positions 64p … 64p+63 and covers every
    position up to the chunk's end. `samples`: the last row's logits choose the next token. The last token may be
    PENDING: the newest that was sampled in this slot, which only the device knows.
    """

    slot: int
    request: Request
    start: int
    tokens: tuple[int, ...]
    pages: tuple[int, ...]
    samples: bool
    scored_rows: tuple[int, ...] = ()
    """Rows (indices into `tokens`) whose logits give the log-probability of the prompt's next token, or whose hidden
    state is a part of the embedding that the request asks for."""
    cached: int = 0
    """Tokens of the prompt that the chat did not compute: their pages were there."""
    state_from: int | None = None
    """Before the step the slot's state becomes what this checkpoint holds."""
    state_to: int | None = None
    """Behind the step the slot's state is copied to this checkpoint, behind all that are read for the step."""
    shed: int = 0
    """Tokens that context shifts have taken out before: positions do not count them."""

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    @property
    def next_index(self) -> int:
        """Of the token behind it, in prompt + answer."""
        return self.shed + self.end


class StepPlan(msgspec.Struct, frozen=True):
    """One step: chunks in the order in which their rows are batched. Empty means that there is nothing to compute."""

    chunks: tuple[Chunk, ...] = ()
    copies: tuple[Copy, ...] = ()
    """Begun behind the steps that have been launched. Their pages are pinned until `Planner.landed` is told of them."""
