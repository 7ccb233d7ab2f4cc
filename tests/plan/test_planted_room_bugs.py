"""The machine of test_planner_machine.py finds each of these bugs of who may have room; see test_planted_bugs.py.

1 a new prompt passes the parked; 2 nothing is kept for one that is on its way out; 3 the leader is parked; 4 nobody
makes room in turn; 5 a chat is parked for room that is on its way; 6 who is exempt is parked; 7 who was parked last
comes back first; 8 a page that two share is charged twice; 9 the parked pass a new prompt; 10 nobody makes room for a
new one; 11 who fits passes who does not.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from parkway.plan import room as rooms
from parkway.plan import victims
from parkway.plan.limits import Limits
from parkway.plan.pages import PagePool
from parkway.plan.parking import Parking
from parkway.plan.room import Room
from parkway.plan.slot import Slot

from .planted import Plant, machine_finds_it
from .test_planner_machine import CrowdedMachine, LongMachine


def new_prompt_passes_the_parked(patch: pytest.MonkeyPatch) -> None:
    def parked_last(waiting: Sequence[Slot], limits: Limits) -> list[Slot]:
        return sorted(victims.line(waiting, limits), key=lambda slot: slot.stay > 0)

    patch.setattr(rooms, "line", parked_last)


def nothing_kept_for_who_is_leaving(patch: pytest.MonkeyPatch) -> None:
    comes_in = Room._comes_in
    patch.setattr(Room, "_comes_in", lambda self, slot, *, behind: comes_in(self, slot, behind=0))


def parked_pass_the_new(patch: pytest.MonkeyPatch) -> None:
    def new_last(waiting: Sequence[Slot], limits: Limits) -> list[Slot]:
        return sorted(victims.line(waiting, limits), key=lambda slot: not slot.stay)

    patch.setattr(rooms, "line", new_last)


def nobody_makes_room_for_the_new(patch: pytest.MonkeyPatch) -> None:
    def for_the_parked(running: Sequence[Slot], *arguments: Any, **named: Any) -> Slot | None:
        return in_turn(running, *arguments, **named) if parked else None

    in_turn, ready, parked = victims.in_turn, Room._ready, list[bool]()

    def noted(self: Room, slot: Slot) -> bool:
        is_ready = ready(self, slot)
        if is_ready:
            parked[:] = [True] if slot.stay else []
        return is_ready

    patch.setattr(Room, "_ready", noted)
    patch.setattr(rooms, "in_turn", for_the_parked)


def who_fits_passes(patch: pytest.MonkeyPatch) -> None:
    def let_in(self: Room) -> None:
        for slot in self._line():
            if self._ready(slot):
                self._comes_in(slot, behind=0)

    patch.setattr(Room, "_let_in", let_in)


def leader_parked(patch: pytest.MonkeyPatch) -> None:
    def shortest(running: Sequence[Slot]) -> Slot | None:
        return min(running, key=lambda slot: slot.length, default=None)

    patch.setattr(victims, "leader", shortest)


def nobody_makes_room_in_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rooms, "in_turn", lambda *_, **__: None)


def parked_for_room_that_is_coming(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Parking, "coming", 0)


def exempt_parked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Room, "_exempt", None)


def last_parked_first(patch: pytest.MonkeyPatch) -> None:
    order = victims.line

    def reversed_order(*arguments: Any) -> list[Slot]:
        return order(*arguments)[::-1]

    patch.setattr(rooms, "line", reversed_order)


def shared_page_charged_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PagePool, "held", lambda self, pages: 0)


CROWDED: list[Plant] = [
    new_prompt_passes_the_parked,
    nothing_kept_for_who_is_leaving,
    parked_pass_the_new,
    who_fits_passes,
    parked_for_room_that_is_coming,
    shared_page_charged_twice,
]
LONG: list[Plant] = [
    leader_parked,
    nobody_makes_room_in_turn,
    nobody_makes_room_for_the_new,
    exempt_parked,
    last_parked_first,
]
PLANTS = CROWDED + LONG


@pytest.mark.parametrize("plant", PLANTS)
def test_the_machine_finds_it(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    machine_finds_it(LongMachine if plant in LONG else CrowdedMachine)
