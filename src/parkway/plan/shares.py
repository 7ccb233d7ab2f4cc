"""Whose request gets the next slot: slots are shared out evenly among clients. Knows no pages and no slots.

Of clients that wait, one with fewer chats inside is before one with more; among those with as many, the one that has
waited longest, since it came or had its last turn. So before a client that has nothing gets a slot, each other gets no
more than one, however many requests it has sent.
"""

from collections import Counter
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from parkway.plan.slot import Slot
from parkway.plan.victims import place

Entry = tuple[float, int, Slot]
"""By priority and waiting time, then in order of arrival."""


class Shares:
    """Requests that wait for a slot. `_count` numbers arrivals and turns, which says what was first."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[str, list[Entry]] = {}
        """A heap for each client that waits."""
        self._asks: dict[str, int] = {}
        """Since when each has waited for its next turn."""

    def arrive(self, slot: Slot, now: float) -> None:
        """Its priority counts against other requests of its client."""
        self._count += 1
        client = slot.request.client
        if client not in self._waiting:
            self._waiting[client] = []
            self._asks[client] = self._count
        heappush(self._waiting[client], (place(slot.request.priority, now), self._count, slot))

    def withdraw(self, slot: Slot) -> None:
        client = slot.request.client
        self._waiting[client] = [entry for entry in self._waiting[client] if entry[2] is not slot]
        heapify(self._waiting[client])
        self._forget(client)

    def next(self, inside: Iterable[Slot]) -> Slot:
        """The request whose turn it is; it waits no longer. `inside`: the chats that have a slot, or may have one."""
        client = self._whose(Counter([slot.request.client for slot in inside]))
        slot = heappop(self._waiting[client])[2]
        self._count += 1
        self._asks[client] = self._count
        self._forget(client)
        return slot

    def _whose(self, chats: Counter[str]) -> str:
        return min(self._waiting, key=lambda client: (chats[client], self._asks[client]))

    def _forget(self, client: str) -> None:
        """If it waits no longer."""
        if not self._waiting[client]:
            del self._waiting[client], self._asks[client]
