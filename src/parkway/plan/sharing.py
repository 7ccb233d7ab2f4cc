"""Which pages of others a chat can begin with, or will soon. Knows no copies and no policy."""

from collections.abc import Iterable

from parkway.plan.pages import PagePool
from parkway.plan.slot import Slot
from parkway.plan.step import PAGE_TOKENS


class Sharing:
    """Looks for named pages in a pool. `named` off: there are none."""

    def __init__(self, pool: PagePool, *, named: bool) -> None:
        self._pool = pool
        self._named = named

    def found(self, slot: Slot) -> list[int]:
        """Pages that hold the chat's first tokens; never its last token, whose logits it needs."""
        found: list[int] = []
        if self._named and slot.may_share:
            for page in range((slot.length - 1) // PAGE_TOKENS):
                number = self._pool.find(slot.name(page))
                if number is None:
                    break
                found.append(number)
        return found

    def sibling_computes(self, slot: Slot, running: Iterable[Slot]) -> bool:
        """Whether a running chat computes just the page that this one misses first: it is worth the wait."""
        if not self._named or not slot.may_share:
            return False
        page = len(self.found(slot))
        if page >= (slot.length - 1) // PAGE_TOKENS:
            return False
        return any(
            other.sealed <= page < len(other.request.prompt) // PAGE_TOKENS and other.name(page) == slot.name(page)
            for other in running
        )
