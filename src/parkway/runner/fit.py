"""What a model takes beside its weights, and how much of the pool fits into what is left. Knows sizes, no device."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from parkway.backends import Attention, Rings
from parkway.config import EngineSettings
from parkway.errors import NoRoom
from parkway.plan.limits import interval_of
from parkway.plan.pages import pages_for
from parkway.plan.step import PAGE_TOKENS

CHECKPOINT_SHARE, MOST_CHECKPOINT_BYTES, LEAST_CHECKPOINTS = 8, 1 << 30, 2
"""Checkpoints take an eighth of the pool's bytes and so much at most; but there are two where they fit."""
CHECKPOINTS_OF_A_SLOT = 2
"""With rings: the two that a turn leaves must outlast the turns of all other slots' chats."""
SAVING = 2
"""Rings with their checkpoints are worth it where the layers' pages would take so many times as much, since what chats
share is found at fewer places."""
RING_SHARE = 4
"""Rings that are not there to save memory take a quarter of what is free at most."""

RingUse = Literal["saving", "fitting", "never"]
"""Where layers that see a window have rings: where that saves enough, wherever there is room, or nowhere."""


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens of the pool, and of the longest chat. `rings`, where there are some; then `checkpoints` are the fewest to
    have, if they fit."""

    tokens: int
    n_ctx: int
    rings: Rings | None = None
    checkpoints: int = LEAST_CHECKPOINTS


def room_for(settings: EngineSettings, *, free_bytes: int, page_bytes: int, ctx_train: int) -> Room:
    """As --ctx-size says. Where that is 0, as much as fits into `free_bytes`, but no more than every slot could use of
    the context that the model was trained on, and no chat is longer than that. Raises NoRoom."""
    if settings.ctx_size:
        return Room(settings.ctx_size, settings.ctx_size)
    fitting = free_bytes // page_bytes * PAGE_TOKENS
    if fitting < PAGE_TOKENS:
        missing = (page_bytes - free_bytes) / 2**20
        raise NoRoom(
            f"--ctx-size 0: {missing:,.0f} MiB are missing for {PAGE_TOKENS} tokens of KV beside the weights; take a "
            "smaller model or a smaller quantisation of it"
        )
    tokens = min(fitting, settings.parallel * ctx_train)
    return Room(tokens, min(tokens, ctx_train))


def room_with_rings(
    settings: EngineSettings,
    attention: Sequence[Attention],
    *,
    rows: int,
    chunk_tokens: int | None,
    use: RingUse,
    free_bytes: int,
    layer_bytes: int,
    ctx_train: int,
) -> Room:
    """The room of a model with such layers, some of them in rings if that is of use. `rows`: of a step; `chunk_tokens`:
    the most of one chat, where that is known; `layer_bytes`: of one layer in a page. Raises NoRoom."""
    whole = len(attention) * layer_bytes
    room = room_for(settings, free_bytes=free_bytes, page_bytes=whole, ctx_train=ctx_train)
    layers, slots = _ringed(attention), settings.parallel
    if not layers or use == "never":
        return room
    chunk = min(rows, chunk_tokens or interval_of(rows))
    rings = Rings(layers, max(how.window for how in attention), chunk)
    count, ring_pages, page_bytes = CHECKPOINTS_OF_A_SLOT * slots, slots * rings.pages, len(layers) * layer_bytes
    if use == "saving":
        fits = SAVING * (ring_pages + count * rings.kept) <= pages_for(room.tokens)
    else:
        fits = ring_pages * page_bytes <= free_bytes // RING_SHARE
    if not fits:
        return room
    if settings.ctx_size == 0:
        left = free_bytes - (ring_pages + count * rings.kept) * page_bytes
        room = room_for(settings, free_bytes=left, page_bytes=whole - page_bytes, ctx_train=ctx_train)
    return replace(room, rings=rings, checkpoints=count)


def _ringed(attention: Sequence[Attention]) -> tuple[int, ...]:
    """Layers that may have rings: those that see a window. One layer at least has pages in the pool, even if it sees a
    window too: pages without a byte would be a case of their own for whoever counts or copies them."""
    layers = tuple(how.layer for how in attention if how.window)
    return layers[1:] if len(layers) == len(attention) else layers


def checkpoints_for(
    pages: int, pool_bytes: int, unit_bytes: int, free_bytes: int, least: int = LEAST_CHECKPOINTS
) -> int:
    """How many checkpoints of that size go with a pool: one for each page at most."""
    budget = min(pool_bytes // CHECKPOINT_SHARE, MOST_CHECKPOINT_BYTES)
    return max(0, min(max(least, budget // unit_bytes), pages, free_bytes // unit_bytes))


def told(**sizes: int) -> str:
    """`name=bytes` as one line for people; what takes nothing is left out."""
    return ", ".join(f"{name.replace('_', ' ')} {_human(size)}" for name, size in sizes.items() if size)


def _human(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"
