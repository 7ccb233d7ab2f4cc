"""Everybody who is here: who waits for a slot, who waits for room, who runs. Knows no pages."""

from parkway.plan.shares import Shares
from parkway.plan.slot import Slot, State


class Chats:
    """`arrived`: requests for which there is no slot; `starting`: those for which there is one, and no room yet.
    `running`: those that compute, in the order in which they came into the pool; `out`: those that are parked, or on
    the way out or back, by when they left. `first` is the chat that started before all others ever did."""

    def __init__(self, slots: int) -> None:
        self.slots: list[Slot | None] = [None] * slots
        self.arrived: dict[int, Slot] = {}
        self.starting: list[Slot] = []
        self.running: list[Slot] = []
        self.out: list[Slot] = []
        self.first: Slot | None = None
        self._shares = Shares()
        self._newcomers: list[Slot] = []
        """Those that have arrived since time was told last."""

    @property
    def resident(self) -> list[Slot]:
        """Those that hold pages in which they compute, now or as soon as their copy has landed."""
        return self.running + [slot for slot in self.out if slot.state is State.RESTORING]

    @property
    def waiting(self) -> list[Slot]:
        """Those that wait for room: parked, on the way out, or new."""
        return [slot for slot in self.out if slot.state is not State.RESTORING] + self.starting

    @property
    def nobody(self) -> bool:
        return not (self.running or self.out or self.starting or self.arrived)

    def find(self, request_id: int) -> Slot | None:
        """The chat of a request that has a slot."""
        return next((slot for slot in self.slots if slot and slot.request.id == request_id), None)

    def arrive(self, slot: Slot) -> None:
        self.arrived[slot.request.id] = slot
        self._newcomers.append(slot)

    def admit(self, now: float) -> None:
        """Requests for which there is a slot wait for room from now on."""
        for slot in self._newcomers:
            self._shares.arrive(slot, now)
        self._newcomers.clear()
        while self.arrived and len(self.starting) < self.slots.count(None):
            slot = self._shares.next([*filter(None, self.slots), *self.starting])
            del self.arrived[slot.request.id]
            slot.since = now
            self.starting.append(slot)

    def withdraw(self, request_id: int) -> bool:
        """Drops a request that has not started; False if it is none."""
        count = len(self.starting)
        self.starting = [slot for slot in self.starting if slot.request.id != request_id]
        waited = self.arrived.pop(request_id, None)
        if waited in self._newcomers:
            self._newcomers.remove(waited)
        elif waited:
            self._shares.withdraw(waited)
        return len(self.starting) < count or waited is not None

    def start(self, slot: Slot) -> None:
        self.starting.remove(slot)
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
