"""The machine of test_planner_machine.py finds each of these bugs of context shifts; see test_planted_bugs.py. Some,
which take a rare moment or a long time, are found in a scene of test_shift.py or test_checkpoints.py.

1 a chat is shifted while its last token is in flight; 2 its pages keep the names of before; 3 a part of a page goes;
4 random numbers begin again; 5 its pages are not given back; 6 the kept prefix is not kept; 7 its answer is as long as
its context; 8 what it finds has no checkpoint; 9 others wait for the pages of its prompt; 10 pages that are being saved
ahead get the names of those after the shift; 11 its turn begins anew.
"""

from collections.abc import Callable, Iterable

import msgspec
import pytest

from parkway.plan import room as module
from parkway.plan.checkpoints import Checkpoints
from parkway.plan.pages import PagePool
from parkway.plan.parking import Parking
from parkway.plan.room import Room
from parkway.plan.shift import shed
from parkway.plan.slot import Slot
from parkway.plan.step import Chunk
from parkway.request import Request

from .planted import Plant, machine_finds_it
from .test_checkpoints import test_a_shifted_chat_begins_at_one_in_what_it_keeps as begins_at_one
from .test_checkpoints import test_a_shifted_chat_leaves_one_at_the_end_of_what_is_left as leaves_one
from .test_planner_machine import ShiftMachine
from .test_shift import test_endless_chats_take_turns as turns
from .test_shift import test_what_was_saved_ahead_is_not_taken_for_what_is_there_after_a_shift as saved_ahead


def shifted_in_flight(patch: pytest.MonkeyPatch) -> None:
    def outgrown(self: Slot) -> bool:
        return self.length == self.max_length and self.shed + self.max_length < self.limit

    patch.setattr(Slot, "outgrown", property(outgrown))


def names_stay(patch: pytest.MonkeyPatch) -> None:
    shift = Slot.shift

    def shift_and_keep(self: Slot, gone: range) -> None:
        names = self.names.copy()
        shift(self, gone)
        self.names = names[: len(self.tokens) // 64]

    patch.setattr(Slot, "shift", shift_and_keep)


def part_of_a_page_goes(patch: pytest.MonkeyPatch) -> None:
    def all_but_a_few(request: Request, tokens: int) -> range:
        gone = shed(request, tokens)
        return range(gone.start, gone.stop - 3)

    patch.setattr(module, "shed", all_but_a_few)


def draws_begin_again(patch: pytest.MonkeyPatch) -> None:
    advance = Slot.advance

    def advance_as_if_new(self: Slot, end: int, state_to: int | None = None) -> Chunk:
        return msgspec.structs.replace(advance(self, end, state_to), shed=0)

    patch.setattr(Slot, "advance", advance_as_if_new)


def pages_are_kept(patch: pytest.MonkeyPatch) -> None:
    shift = Room.shift

    def shift_without(self: Room, slot: Slot) -> None:
        with pytest.MonkeyPatch.context() as now:
            now.setattr(PagePool, "give", lambda self, pages: None)
            shift(self, slot)

    patch.setattr(Room, "shift", shift_without)


def nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    def from_the_start(request: Request, tokens: int) -> range:
        return range(len(shed(request, tokens)))

    patch.setattr(module, "shed", from_the_start)


def ends_with_its_context(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "outgrown", property(lambda self: False))


def no_checkpoint(patch: pytest.MonkeyPatch) -> None:
    shift = Room.shift

    def shift_without(self: Room, slot: Slot) -> None:
        with pytest.MonkeyPatch.context() as now:
            now.setattr(Checkpoints, "enter", lambda self, slot: None)
            shift(self, slot)

    patch.setattr(Room, "shift", shift_without)


def given_is_the_prompt(patch: pytest.MonkeyPatch) -> None:
    shift = Slot.shift

    def shift_and_forget(self: Slot, gone: range) -> None:
        shift(self, gone)
        self.given = len(self.request.prompt)

    patch.setattr(Slot, "shift", shift_and_forget)


def saved_under_new_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Parking, "shifted", lambda self, slot: None)


def turn_begins_anew(patch: pytest.MonkeyPatch) -> None:
    shift = Room.shift

    def shift_and_stay(self: Room, slot: Slot) -> None:
        shift(self, slot)
        slot.begin_stay(self.pace.now)

    patch.setattr(Room, "shift", shift_and_stay)


PLANTS: Iterable[Plant] = [
    shifted_in_flight,
    names_stay,
    part_of_a_page_goes,
    draws_begin_again,
    pages_are_kept,
    nothing_is_kept,
    ends_with_its_context,
]


@pytest.mark.parametrize("plant", PLANTS)
def test_the_machine_finds_it(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    machine_finds_it(ShiftMachine)


@pytest.mark.parametrize(
    ("plant", "scene"),
    [
        (saved_under_new_names, saved_ahead),
        (turn_begins_anew, turns),
        (no_checkpoint, begins_at_one),
        (given_is_the_prompt, leaves_one),
    ],
)
def test_a_scene_finds_it(plant: Plant, scene: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    scene()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        scene()
