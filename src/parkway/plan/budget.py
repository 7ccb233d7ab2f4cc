"""Arithmetic over pages: what chats hold, what they will need, what parking one gains. Knows no order and no policy."""

from collections.abc import Iterable

from parkway.plan.pages import PagePool, pages_for
from parkway.plan.slot import Slot
from parkway.plan.step import PAGE_TOKENS

RUNWAY = PAGE_TOKENS
"""Tokens for which a chat that comes into the pool has room at least, or it would be parked again at once."""


def reach(slot: Slot, tokens: int) -> int:
    """Pages of a chat once it has so many tokens more, those in flight counted; none for a token that ends it."""
    return pages_for(min(slot.length + tokens, slot.most_rows))


def demand(slots: Iterable[Slot], tokens: int) -> int:
    """Pages that these chats, which hold theirs already, will take until each has so many tokens more."""
    missing = 0
    for slot in slots:  # `reach` written out, because it is asked of every chat in every step
        rows = slot.length + tokens
        if rows > slot.most_rows:
            rows = slot.most_rows
        more = (rows + PAGE_TOKENS - 1) // PAGE_TOKENS - len(slot.pages)
        if more > 0:
            missing += more
    return missing


def gain(slot: Slot, pool: PagePool, tokens: int) -> int:
    """Pages that are there for others if this chat leaves: those that it alone holds, and those it would still take."""
    return pool.held_once(slot.pages) + max(0, reach(slot, tokens) - len(slot.pages))
