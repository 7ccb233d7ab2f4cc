"""Everybody who is here: who waits for a slot, who runs, who is out. Knows no pages."""

from collections import OrderedDict
from collections.abc import Iterator

from parkway.plan.slot import Slot, State
from parkway.request import Request


class Chats:
    """`running`: those that compute, in the order in which they came into the pool; `out`: those that are parked, or on
    the way out or back, by when they left. `first` is the chat that started before all others ever did."""

    def __init__(self, slots: int) -> None:
        self.slots: list[Slot | None] = [None] * slots
        self.arrived: OrderedDict[int, Slot] = OrderedDict()
        self.running: list[Slot] = []
        self.out: list[Slot] = []
        self.first: Slot | None = None

    @property
    def resident(self) -> Iterator[Slot]:
        """Those that hold pages in which they compute, now or as soon as their copy has landed."""
        yield from self.running
        yield from (slot for slot in self.out if slot.state is State.RESTORING)

    @property
    def parked(self) -> list[Slot]:
        """Those that could come back, and of which nothing is in flight."""
        return [slot for slot in self.out if slot.state is State.PREEMPTED and not slot.flying]

    @property
    def leaving(self) -> list[Slot]:
        """Those that are on the way out: a copy, or a token of their own, is still to land."""
        return [slot for slot in self.out if slot.state is State.PREEMPTING or slot.flying]

    @property
    def nobody(self) -> bool:
        return not (self.running or self.out or self.arrived)

    def find(self, request_id: int) -> Slot | None:
        """The chat of a request that has a slot."""
        return next((slot for slot in self.slots if slot and slot.request.id == request_id), None)

    def arrive(self, request: Request, n_ctx: int) -> None:
        self.arrived[request.id] = Slot.waiting(request, n_ctx)

    def start(self, slot: Slot) -> None:
        """The next in line gets a slot, of which there must be a free one."""
        del self.arrived[slot.request.id]
        slot.index = self.slots.index(None)
        self.slots[slot.index] = slot
        self.first = self.first or slot
        self.running.append(slot)

    def leave(self, slot: Slot) -> None:
        self.running.remove(slot)
        self.out.append(slot)

    def come_back(self, slot: Slot) -> None:
        self.out.remove(slot)
        self.running.append(slot)

    def end(self, slot: Slot) -> None:
        (self.running if slot in self.running else self.out).remove(slot)
        self.slots[slot.index] = None
