"""States of chats as they were at some page boundaries: where a chat begins with pages of others, its slot's state is
copied from there. Which unit of memory holds which, where chats leave one. Knows no pages and copies nothing.

A state is all that a slot keeps of its chat beside pages of the pool: those of delta nets, rings of windows.

The device runs steps in their order and copies between them, so a unit that a planned chunk reads can be taken at once:
who writes it writes later. One that is written is found when the step has landed.
"""

from collections import OrderedDict
from collections.abc import Sequence

from parkway.plan.slot import Slot
from parkway.plan.step import PAGE_TOKENS


class Units:
    """`total` units, counted from 0. One with a name (that of the page that ends where it was taken) is found, until it
    is taken for another: the one that was used least recently first, never one that is held."""

    def __init__(self, total: int) -> None:
        self._free = list(range(total))
        self._named: OrderedDict[bytes, int] = OrderedDict()
        """The one that was used last comes last."""
        self._held = [0] * total
        """How many chats are about to read each."""
        self._written: set[int] = set()

    def __contains__(self, name: bytes) -> bool:
        return name in self._named

    def hold(self, name: bytes) -> int:
        """The unit of that name, which is not taken before it is released."""
        unit = self._named[name]
        self._named.move_to_end(name)
        self._held[unit] += 1
        return unit

    def release(self, unit: int) -> None:
        assert self._held[unit], f"nobody holds checkpoint {unit}"
        self._held[unit] -= 1

    def take(self) -> int | None:
        """A unit to write; None if all are held or written."""
        if not self._free:
            oldest = next((name for name, unit in self._named.items() if not self._held[unit]), None)
            if oldest is None:
                return None
            self._free.append(self._named.pop(oldest))
        unit = self._free.pop()
        self._written.add(unit)
        return unit

    def seal(self, unit: int, name: bytes) -> None:
        """It has been written; from now on it is found, unless another is by that name."""
        self._written.remove(unit)
        if name in self._named:
            self._named.move_to_end(name)
            self._free.append(unit)
        else:
            self._named[name] = unit

    def give(self, unit: int) -> None:
        """It has been written for nobody."""
        self._written.remove(unit)
        self._free.append(unit)

    def check(self) -> None:
        """Asserts that each unit is free, named or written, and that those that are held have names."""
        units = [*self._free, *self._named.values(), *self._written]
        assert sorted(units) == list(range(len(self._held))), "a checkpoint is lost, or in two places"
        held = {unit for unit, count in enumerate(self._held) if count}
        assert held <= set(self._named.values()), "a checkpoint is held that is not there"


class Checkpoints:
    """`units`: of memory; None where chats keep no states, so that pages are enough. One is taken every `interval`
    tokens, at the prompt's last page boundary behind which there is a token, and at the chat's branch."""

    def __init__(self, units: int | None, interval: int) -> None:
        self.needed = units is not None
        self._any = bool(units)
        self._interval = interval
        self._units = Units(units or 0)

    def reached(self, slot: Slot, pages: Sequence[int]) -> int:
        """Of these pages, which hold the chat's first tokens, how many it can begin behind."""
        if not self.needed:
            return len(pages)
        return next((count for count in range(len(pages), 0, -1) if slot.name(count - 1) in self._units), 0)

    def enter(self, slot: Slot) -> None:
        """The chat has come in behind pages that it found; it needs what was left there until its next chunk."""
        if self.needed and slot.computed:
            slot.state_from = self._units.hold(_name(slot, slot.computed))

    def leave(self, slot: Slot) -> None:
        """The chat begins elsewhere, or has begun."""
        if slot.state_from is not None:
            self._units.release(slot.state_from)
            slot.state_from = None

    def next_place(self, slot: Slot, tokens: int) -> int:
        """Where the chat leaves one next, behind its first `tokens`."""
        place = (tokens // self._interval + 1) * self._interval
        last = (slot.given - 1) // PAGE_TOKENS * PAGE_TOKENS
        for early in (last, slot.branch):
            if tokens < early < place:
                place = early
        return place

    def cut(self, slot: Slot, end: int) -> int:
        """The end of a chunk that was to end there: it does not pass the next place."""
        return min(end, self.next_place(slot, slot.computed)) if self._any else end

    def begin(self, slot: Slot, end: int) -> int | None:
        """The chat's next chunk, up to `end`, is planned. Returns the unit that its state is copied to behind that."""
        if not self._any or end != self.next_place(slot, slot.computed):
            return None
        return self._units.take()

    def landed(self, slot: Slot, unit: int, end: int) -> None:
        """The chunk up to `end` that left one there has landed, and its tokens are known."""
        if slot.ended:
            self._units.give(unit)
        else:
            self._units.seal(unit, _name(slot, end))

    def check(self) -> None:
        """Asserts that the book of the units adds up."""
        self._units.check()


def _name(slot: Slot, end: int) -> bytes:
    return slot.name(end // PAGE_TOKENS - 1)
