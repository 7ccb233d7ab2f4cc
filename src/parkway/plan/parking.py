"""The way out of the pool and back: which pages a parked chat has on the host, and the copies that are under way.

Host pages are handed out like the pool's. A sealed page on the host has its name too and stays findable when its chat
has gone back, until the room is needed: a second park copies only what is new. Knows who is out, not why.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Set

from parkway.plan.copies import Copy, Owner
from parkway.plan.pages import HostPages, PagePool
from parkway.plan.slot import Slot, State

SAVED_AT_ONCE = 8
"""Pages of one copy that saves ahead: it must not keep others waiting long."""


class Parking:
    """The host's pages and every copy between them and the pool. `named`: whether sealed pages have names; `forget`:
    those that a chat leaves behind lose theirs."""

    def __init__(self, pool: PagePool, host_pages: int, *, named: bool, forget: bool) -> None:
        self.host = HostPages(host_pages)
        self.planned: list[Copy] = []
        """Copies that nobody has been told of yet."""
        self._pool = pool
        self._named = named
        self._forget = forget
        self._open: dict[int, tuple[Copy, Slot, tuple[int, ...]]] = {}
        """By id: the copy, the chat it is for, and the numbers of the chat's pages that it copies."""
        self._ids = itertools.count()

    @property
    def under_way(self) -> int:
        return len(self._open)

    @property
    def coming(self) -> int:
        """Pages that will be free when the copies under way have landed: of chats that leave or have ended."""
        if not self._open:
            return 0  # as in nearly every step, each of which asks
        copies = self._open.values()
        leaving = {id(slot): slot for copy, slot, _ in copies if copy.owner is Owner.PARK and not slot.ended}
        references = Counter(page for slot in leaving.values() for page in slot.pages)
        pinned = {page for copy, _, _ in copies for page in (copy.targets if copy.from_host else copy.sources)}
        return self._pool.left_by(references, pinned | references.keys())

    @property
    def saving(self) -> bool:
        return any(copy.owner is Owner.SAVE_AHEAD for copy, _, _ in self._open.values())

    def misses(self, slot: Slot) -> int:
        """How many of a chat's pages the host does not have."""
        return sum([self._kept(slot, page) is None for page in range(len(slot.pages))])

    def leave(self, slot: Slot) -> bool:
        """Begins to park a chat: what the host does not have is copied. False, with nothing changed, without room."""
        kept = [self._kept(slot, page) for page in range(len(slot.pages))]
        self.host.share(page for page in kept if page is not None)  # first, so that they are not taken
        missing = tuple([page for page, number in enumerate(kept) if number is None])
        taken = self.host.take(len(missing))
        if taken is None:
            self.host.give(page for page in kept if page is not None)
            return False
        slot.host = _filled(kept, taken)
        slot.move(State.PREEMPTING)
        if missing:
            settled = sum([page < slot.sealed for page in missing])
            self._begin(Owner.PARK, slot, missing, [slot.pages[page] for page in missing], taken, settled)
        else:
            self._left(slot)
        return True

    def save_ahead(self, slot: Slot) -> bool:
        """Begins to copy sealed pages that the host does not have; False if there are none, or no room."""
        missing = list(itertools.islice(self._unsaved(slot), SAVED_AT_ONCE))
        taken = self.host.take(len(missing)) if missing else None
        slot.saved = missing[-1] + 1 if missing else slot.sealed
        if taken is None:
            return False
        sources = [slot.pages[page] for page in missing]
        self._begin(Owner.SAVE_AHEAD, slot, tuple(missing), sources, taken, len(missing))
        return True

    def found(self, slot: Slot) -> list[int | None]:
        """For each of a parked chat's pages, the page of the pool that still holds it, if one does."""
        if not self._named:
            return [None] * len(slot.host)
        return [self._pool.find(slot.name(page)) if page < slot.sealed else None for page in range(len(slot.host))]

    def come_back(self, slot: Slot, in_flight: Set[int]) -> None:
        """Begins to bring a chat back from the host, into pages that must be free. Those that are not `in_flight`, used
        by a launched step, come first: their copies need not wait for it."""
        found = self.found(slot)
        self._pool.share(page for page in found if page is not None)
        missing = tuple([page for page, number in enumerate(found) if number is None])
        taken = self._pool.take(len(missing))
        assert taken is not None, f"slot {slot.index}: there is no room to come back to"
        slot.pages = _filled(found, taken)
        slot.move(State.RESTORING)
        if missing:
            missing = tuple(sorted(missing, key=lambda page: slot.pages[page] in in_flight))
            sources, targets = [slot.host[page] for page in missing], tuple([slot.pages[page] for page in missing])
            settled = sum([page not in in_flight for page in targets])
            self._begin(Owner.RESTORE, slot, missing, sources, targets, settled)
        else:
            self._returned(slot)

    def landed(self, copy_id: int) -> Slot | None:
        """A copy has been done. Returns the chat that was parked or has come back by it, if it is still here."""
        copy, slot, pages = self._unpinned(copy_id)
        if copy.to_host:
            self.host.fill(copy.targets)
        if copy.owner is Owner.SAVE_AHEAD:
            self._name_on_host(slot, pages, copy.targets)
            self.host.give(copy.targets)
        elif slot.ended:
            return None
        elif copy.owner is Owner.PARK:
            self._name_on_host(slot, pages, copy.targets)
            self._left(slot)
            return slot
        else:
            self._returned(slot)
            return slot
        return None

    def refused(self, copy_id: int) -> Slot | None:
        """A copy to the host could not be begun. Returns the chat that was to be parked by it, if it is still here."""
        copy, slot, _ = self._unpinned(copy_id)
        assert copy.to_host, f"copy {copy_id}: only the host can lack memory"
        if copy.owner is Owner.SAVE_AHEAD:
            self.host.give(copy.targets)
            return None
        self.host.refuse()
        if slot.ended:
            return None
        self.drop(slot)
        return slot

    def shifted(self, slot: Slot) -> None:
        """The chat's pages are no longer those that are being saved ahead: they get no names on the host."""
        for copy, chat, _ in list(self._open.values()):
            if chat is slot:
                self._open[copy.id] = copy, slot, ()

    def drop(self, slot: Slot) -> None:
        """What the chat has computed is to be computed again."""
        pages = slot.pages
        self.give_up(slot)
        if self._forget:
            self._pool.forget(pages)

    def give_up(self, slot: Slot) -> None:
        """Drops what the chat has on the host and in the pool; copies under way keep their pages until they land."""
        self.host.give(reversed(slot.host))
        self._pool.give(reversed(slot.pages))  # of what stays cached, the beginning is to stay longest
        slot.host = slot.pages = ()

    def empty(self) -> None:
        """Forgets what the host still has of chats that have gone: its memory is about to be given back."""
        assert not self.host.used, "somebody's pages are on the host"
        self.host.empty()

    def take_planned(self) -> tuple[Copy, ...]:
        planned, self.planned = tuple(self.planned), []
        return planned

    def _kept(self, slot: Slot, page: int) -> int | None:
        return self.host.find(slot.name(page)) if self._named and page < slot.sealed else None

    def _unsaved(self, slot: Slot) -> Iterator[int]:
        return (page for page in range(slot.saved, slot.sealed) if self._kept(slot, page) is None)

    def _begin(
        self,
        owner: Owner,
        slot: Slot,
        pages: tuple[int, ...],
        sources: list[int],
        targets: tuple[int, ...],
        settled: int,
    ) -> None:
        copy = Copy(next(self._ids), owner, tuple(sources), targets, settled)
        device, host = (copy.targets, copy.sources) if copy.from_host else (copy.sources, copy.targets)
        self._pool.pin(device)
        self.host.pin(host)
        self._open[copy.id] = copy, slot, pages
        self.planned.append(copy)

    def _unpinned(self, copy_id: int) -> tuple[Copy, Slot, tuple[int, ...]]:
        copy, slot, pages = self._open.pop(copy_id)
        device, host = (copy.targets, copy.sources) if copy.from_host else (copy.sources, copy.targets)
        self._pool.unpin(device)
        self.host.unpin(host)
        if self._forget and not slot.ended:
            self._pool.forget(device)  # if it has left them meanwhile
        return copy, slot, pages

    def _left(self, slot: Slot) -> None:
        slot.move(State.PREEMPTED)
        pages, slot.pages = slot.pages, ()
        self._pool.give(reversed(pages))
        if self._forget:
            self._pool.forget(pages)

    def _returned(self, slot: Slot) -> None:
        self.host.give(reversed(slot.host))
        slot.host = ()
        if self._named:
            for page in range(slot.sealed):
                self._pool.seal(slot.pages[page], slot.name(page), slot.before(page))
        slot.move(slot.returns_to)

    def _name_on_host(self, slot: Slot, pages: Iterable[int], targets: Iterable[int]) -> None:
        """Those of the copied pages that are sealed by now: their tokens are accepted."""
        if self._named:
            for page, target in zip(pages, targets, strict=False):  # none of them after a shift
                if page < slot.sealed:
                    self.host.seal(target, slot.name(page))


def _filled(pages: Iterable[int | None], taken: Iterable[int]) -> tuple[int, ...]:
    """The same pages with the taken ones, in their order, where there is none."""
    numbers = iter(taken)
    return tuple([next(numbers) if page is None else page for page in pages])
