"""What a model takes beside its weights, and how much of the pool fits into what is left. Knows sizes, no device."""

from dataclasses import dataclass

from parkway.config import EngineSettings
from parkway.errors import NoRoom
from parkway.plan.step import PAGE_TOKENS

CHECKPOINT_SHARE, MOST_CHECKPOINT_BYTES, LEAST_CHECKPOINTS = 8, 1 << 30, 2
"""Checkpoints of states take an eighth of the pool's bytes and so much at most; but there are two where they fit."""


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens of the pool, and of the longest chat."""

    tokens: int
    n_ctx: int


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


def checkpoints_for(pages: int, pool_bytes: int, state_bytes: int, free_bytes: int) -> int:
    """How many checkpoints of states of that size go with a pool: one for each page at most."""
    budget = min(pool_bytes // CHECKPOINT_SHARE, MOST_CHECKPOINT_BYTES)
    return max(0, min(max(LEAST_CHECKPOINTS, budget // state_bytes), pages, free_bytes // state_bytes))


def told(**sizes: int) -> str:
    """`name=bytes` as one line for people; what takes nothing is left out."""
    return ", ".join(f"{name.replace('_', ' ')} {_human(size)}" for name, size in sizes.items() if size)


def _human(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:,.1f} MiB"
