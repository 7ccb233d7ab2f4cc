"""Which pages of others a chat can begin with, or will soon. Knows no copies and no policy."""

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
        found: list[int] = []
        if self._named and slot.may_share:
            for page in range((slot.length - 1) // PAGE_TOKENS):
                number = self._pool.find(slot.name(page))
                if number is None:
                    break
                found.append(number)
        return found[: self._checkpoints.reached(slot, found)]

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

    def _awaited(self, other: Slot, found: int) -> int:
        """The number of the page at whose end one that has found so many could begin, when this chat gets there."""
        if not self._checkpoints.needed:
            return found
        return self._checkpoints.next_place(other, max(found, other.sealed) * PAGE_TOKENS) // PAGE_TOKENS - 1
