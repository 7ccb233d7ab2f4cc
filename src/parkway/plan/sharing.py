"""Which pages of others a chat can begin with, or will soon, and where it parts with them. Knows no copies and no
policy."""

from collections.abc import Iterable

from parkway.plan.checkpoints import Checkpoints
from parkway.plan.pages import PagePool
from parkway.plan.slot import Slot
from parkway.plan.step import PAGE_TOKENS


class Sharing:
    """Looks for named pages in a pool. `named` off: there are none."""

    def __init__(self, pool: PagePool, checkpoints: Checkpoints, *, named: bool) -> None:
        self._pool = pool
        self._checkpoints = checkpoints
        self._named = named

    def found(self, slot: Slot) -> list[int]:
        """Pages that hold the chat's first tokens, up to a checkpoint where it needs one; never its last token, whose
        logits it needs."""
        met = self._met(slot)
        return met[: self._checkpoints.reached(slot, met)]

    def enter(self, slot: Slot) -> None:
        """The chat has come in behind pages that it found. If it met more, and others went on from the last of them, a
        third may come this way: the chat leaves a checkpoint there. Where nobody went on it continues an earlier chat,
        and whoever continues it in turn begins further behind."""
        self._checkpoints.enter(slot)
        met = len(self._met(slot)) if self._checkpoints.needed else 0
        branches = met * PAGE_TOKENS > slot.computed and self._pool.followed(slot.name(met - 1))
        slot.branch = met * PAGE_TOKENS if branches else 0

    def sibling_computes(self, slot: Slot, running: Iterable[Slot]) -> bool:
        """Whether a running chat computes just the page that this one misses first, or up to a checkpoint that it could
        begin behind: it is worth the wait."""
        if not self._named or not slot.may_share:
            return False
        found, most = len(self.found(slot)), (slot.length - 1) // PAGE_TOKENS
        return found < most and any(
            found <= page < min(most, other.given // PAGE_TOKENS) and other.name(page) == slot.name(page)
            for other in running
            if (page := self._awaited(other, found)) >= other.sealed
        )

    def _met(self, slot: Slot) -> list[int]:
        """Pages that hold the chat's first tokens, wherever checkpoints are."""
        met: list[int] = []
        if self._named and slot.may_share:
            for page in range((slot.length - 1) // PAGE_TOKENS):
                number = self._pool.find(slot.name(page))
                if number is None:
                    break
                met.append(number)
        return met

    def _awaited(self, other: Slot, found: int) -> int:
        """The number of the page at whose end one that has found so many could begin, when this chat gets there."""
        if not self._checkpoints.needed:
            return found
        return self._checkpoints.next_place(other, max(found, other.sealed) * PAGE_TOKENS) // PAGE_TOKENS - 1
