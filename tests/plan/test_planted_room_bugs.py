"""The machine of test_planner_machine.py finds each of these bugs of who may have room; see test_planted_bugs.py.

1 a new prompt passes the first of the parked; 2 or one that is on its way out; 3 the leader is parked; 4 nobody makes
room in turn; 5 a chat is parked for room that is on its way; 6 who is exempt is parked; 7 who was parked last comes
back first; 8 a page that two share is charged twice; 10 a turn ends while the chat computes again what it had.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from parkway.plan import room as rooms
from parkway.plan import victims
from parkway.plan.chats import Chats
from parkway.plan.pages import PagePool
from parkway.plan.parking import Parking
from parkway.plan.room import Room
from parkway.plan.slot import Slot

from .planted import Plant, machine_finds_it
from .test_planner_machine import CrowdedMachine, LongMachine


def new_prompt_passes_the_parked(patch: pytest.MonkeyPatch) -> None:
    enter = Room._enter
    patch.setattr(Room, "_enter", lambda self, slot, *, behind: enter(self, slot, behind=0))


def new_prompt_passes_who_is_leaving(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Chats, "leaving", [])


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
    order = victims.return_order

    def reversed_order(*arguments: Any) -> list[Slot]:
        return order(*arguments)[::-1]

    patch.setattr(rooms, "return_order", reversed_order)


def shared_page_charged_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PagePool, "held", lambda self, pages: 0)


CROWDED: list[Plant] = [
    new_prompt_passes_the_parked,
    new_prompt_passes_who_is_leaving,
    parked_for_room_that_is_coming,
    shared_page_charged_twice,
]
LONG: list[Plant] = [
    leader_parked,
    nobody_makes_room_in_turn,
    exempt_parked,
    last_parked_first,
]
PLANTS = CROWDED + LONG


@pytest.mark.parametrize("plant", PLANTS)
def test_the_machine_finds_it(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    machine_finds_it(LongMachine if plant in LONG else CrowdedMachine)
