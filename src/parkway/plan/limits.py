"""What a planner has to give, how it shares that out, and the knobs that tests turn."""

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from parkway.plan.step import PAGE_TOKENS

FOREVER = float("inf")
LOOK_AHEAD = 8
"""Steps, while nothing has been measured."""
INTERVAL = 512
"""Tokens from one checkpoint to the next."""

Victim = Literal["cheapest", "smallest", "largest", "youngest", "oldest"]


@dataclass(frozen=True, slots=True)
class Knobs:
    """For tests and measurements. `park_every=N` parks each chat every N answer tokens, whether room is short or not.

    `forget` takes back the names of pages that such a chat leaves behind, as if others had needed the room, so that all
    comes back from the host or is computed again. `exempt_first`: the chat that starts first is never parked.
    `look_ahead` off: chats are parked only when there is no page left at all.
    """

    park_every: int = 0
    forget: bool = False
    exempt_first: bool = False
    victim: Victim = "cheapest"
    look_ahead: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """What the planner has to give. `n_ctx`: most tokens of one chat; one chat alone always fits the pool.

    A step has `batch_tokens` rows, `logit_rows` of them with logits; both suffice for every slot to decode.
    `chunk_tokens` caps one chat's rows. `ahead`: steps that may be in flight, their results unknown, while the next is
    planned. `prefix_cache`: whether a chat may share pages that hold the beginning of its tokens. `host_pages`: room
    for parked chats; without it they are computed again. `parks` off: a pool that is full ends the chats that run.
    `resume`: who waits for room comes in by how long it has waited ("head"), or parked chats before new ones, those
    parked most often first, and one that fits passes one that does not ("pass"). `quantum`: seconds that a chat may
    stay while another waits for its pages. `checkpoints`: units for what slots keep beside pages (states, rings), as it
    was at page boundaries, without which pages are not enough to begin behind; None where they keep nothing. One is
    taken every `interval` tokens, among other places.
    `shifts`: a chat that has `n_ctx` tokens goes on without its oldest ones.
    """

    slots: int
    pages: int
    n_ctx: int
    batch_tokens: int
    logit_rows: int
    chunk_tokens: int | None = None
    ahead: int = 0
    prefix_cache: bool = True
    host_pages: int = 0
    parks: bool = True
    resume: Literal["head", "pass"] = "head"
    quantum: float = FOREVER
    checkpoints: int | None = None
    interval: int = INTERVAL
    shifts: bool = False
    knobs: Knobs = field(default_factory=Knobs)

    def __post_init__(self) -> None:
        assert self.slots >= 1, "there must be a slot"
        assert 2 <= self.n_ctx <= self.pages * PAGE_TOKENS, "one chat must fit the pool alone"
        assert self.batch_tokens >= self.slots, "a step must hold a token of every slot"
        assert self.logit_rows >= self.slots, "a step must hold the logits of every slot"
        assert self.chunk_tokens is None or self.chunk_tokens >= 1, "a chunk must hold a token"
        assert not self.shifts or self.n_ctx > PAGE_TOKENS, "there must be a page to take out"
        assert self.knobs.park_every >= 0, "chats can't be parked every so many tokens"
        assert self.ahead >= 0, "so many steps can't be in flight"
        assert self.quantum > 0, "a chat must be allowed to stay for a while"
        assert self.checkpoints is None or self.checkpoints >= 0, "there can't be fewer checkpoints than none"
        assert self.interval in range(PAGE_TOKENS, 2**31, PAGE_TOKENS), "a checkpoint is at the end of a page"


def interval_of(batch_tokens: int, window: int = 0) -> int:
    """Tokens from one checkpoint to the next where a step has so many rows: a chunk of a prompt ends there, so that a
    chat that is alone can use a quarter of them at least. Not less than the `window` that a checkpoint holds, so that
    those of a chat don't hold a token twice."""
    quarter, whole = batch_tokens // 4 // PAGE_TOKENS, -(-window // PAGE_TOKENS)
    return max(INTERVAL, quarter * PAGE_TOKENS, whole * PAGE_TOKENS)


class Pace(msgspec.Struct, frozen=True):
    """What the planner is told with every step, as it was measured. `now`: seconds of a clock that never goes back.

    `look_ahead`: steps that run while a park is copied. `page_seconds` to copy one page, `token_seconds` to compute one
    token of a prompt; 0 where nothing has been measured. `switch`: seconds of a park and a restore.
    """

    now: float = 0.0
    look_ahead: int = LOOK_AHEAD
    page_seconds: float = 0.0
    token_seconds: float = 0.0
    switch: float = 0.0
