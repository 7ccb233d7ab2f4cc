"""The machine of test_planner_machine.py finds each of these bugs of checkpoints; see test_planted_bugs.py. Some,
which take a rare moment, are found in a scene of test_checkpoints.py.

1 a chat begins behind pages without a checkpoint; 2 one is found before it has been written; 3 one that a chat needs is
taken; 4 one that is taken keeps its name; 5 it has the name of the page before; 6 one that a cancelled chat has written
is lost; 7 one that a chat needed is held although it was dropped; 8 or has ended; 9 a state is not copied; 10 it is
copied again; 11 a chat that was parked before it computed forgets where it begins; 12 a chunk passes the place of a
checkpoint; 13 none is taken; 14 one is taken where a chunk happens to end; 15 none is taken where a chat parts with
another; 16 one is taken where it only goes on; 17 the other's page has gone, and it still counts; 18 or has come back,
and does not count; 19 the place stays when the chat begins anew; 20 or when it is shifted; 21 nobody waits until one
is there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from parkway.plan import checkpoints as module
from parkway.plan.checkpoints import Checkpoints, Units
from parkway.plan.pages import PagePool
from parkway.plan.parking import Parking
from parkway.plan.planner import Planner
from parkway.plan.prefix import PrefixIndex
from parkway.plan.room import Room
from parkway.plan.sharing import Sharing
from parkway.plan.slot import Slot, Why
from parkway.plan.step import Chunk

from .planted import Plant, machine_finds_it
from .test_checkpoints import test_a_chat_that_begins_anew_forgets_where_it_parted as begins_anew
from .test_checkpoints import test_a_chat_that_is_dropped_before_it_begins_lets_go_of_its_checkpoint as dropped_early
from .test_checkpoints import test_a_chat_that_is_parked_before_it_begins_still_begins_there as parked_early
from .test_checkpoints import test_a_chat_that_is_shifted_forgets_where_it_parted as is_shifted
from .test_checkpoints import test_a_third_waits_for_the_one_that_the_second_leaves as third_waits
from .test_checkpoints import test_one_is_taken_where_a_chat_parts_with_one_that_came_back as came_back
from .test_checkpoints import test_one_that_a_chat_is_about_to_begin_at_is_not_taken_for_another as about_to_begin
from .test_planner_machine import BranchMachine, StatesMachine


def pages_are_enough(patch: pytest.MonkeyPatch) -> None:
    def reached(self: Checkpoints, slot: Slot, pages: Sequence[int]) -> int:
        return len(pages)

    def enter(self: Checkpoints, slot: Slot) -> None:
        if slot.computed and slot.name(slot.computed // 64 - 1) in self._units:
            slot.state_from = self._units.hold(slot.name(slot.computed // 64 - 1))

    patch.setattr(Checkpoints, "reached", reached)
    patch.setattr(Checkpoints, "enter", enter)


def found_before_it_has_landed(patch: pytest.MonkeyPatch) -> None:
    begin, landed = Checkpoints.begin, Checkpoints.landed

    def begin_and_seal(self: Checkpoints, slot: Slot, end: int) -> int | None:
        unit = begin(self, slot, end)
        if unit is not None and end <= len(slot.tokens):
            landed(self, slot, unit, end)
        return unit

    def landed_if_written(self: Checkpoints, slot: Slot, unit: int, end: int) -> None:
        if unit in self._units._written:
            landed(self, slot, unit, end)

    patch.setattr(Checkpoints, "begin", begin_and_seal)
    patch.setattr(Checkpoints, "landed", landed_if_written)


def held_is_taken(patch: pytest.MonkeyPatch) -> None:
    take = Units.take

    def take_any(self: Units) -> int | None:
        held, self._held = self._held, [0] * len(self._held)
        unit = take(self)
        self._held = held
        return unit

    patch.setattr(Units, "take", take_any)


def taken_keeps_its_name(patch: pytest.MonkeyPatch) -> None:
    take = Units.take

    def take_and_keep(self: Units) -> int | None:
        before = self._named.copy()
        unit = take(self)
        self._named = before
        return unit

    patch.setattr(Units, "take", take_and_keep)


def named_as_the_page_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "_name", lambda slot, end: slot.name(max(0, end // 64 - 2)))


def cancelled_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Units, "give", lambda self, unit: self._written.remove(unit))


def leaves_not(patch: pytest.MonkeyPatch, name: str) -> None:
    """While that runs, nobody lets go of a checkpoint."""
    method = getattr(Room, name)

    def without(self: Room, *args: object) -> object:
        with pytest.MonkeyPatch.context() as now:
            now.setattr(Checkpoints, "leave", lambda self, slot: setattr(slot, "state_from", None))
            return method(self, *args)

    patch.setattr(Room, name, without)


def dropped_stays_held(patch: pytest.MonkeyPatch) -> None:
    leaves_not(patch, "_dropped")


def ended_stays_held(patch: pytest.MonkeyPatch) -> None:
    leaves_not(patch, "end")


def not_copied(patch: pytest.MonkeyPatch) -> None:
    advance = Slot.advance

    def advance_as_it_is(self: Slot, end: int, state_to: int | None = None) -> Chunk:
        held, self.state_from = self.state_from, None
        chunk = advance(self, end, state_to)
        self.state_from = held
        return chunk

    patch.setattr(Slot, "advance", advance_as_it_is)


def copied_again(patch: pytest.MonkeyPatch) -> None:
    advance, last = Planner._advanced, dict[int, int | None]()

    def advance_and_copy(self: Planner, slot: Slot, end: int) -> Chunk:
        again, last[id(slot)] = last.get(id(slot)), slot.state_from
        if again is not None and slot.state_from is None and slot.computed:
            slot.state_from = again
            self._room.checkpoints._units._held[again] += 1
        return advance(self, slot, end)

    patch.setattr(Planner, "_advanced", advance_and_copy)


def parked_forgets_where_it_begins(patch: pytest.MonkeyPatch) -> None:
    park = Room._park

    def park_and_forget(self: Room, slot: Slot, why: Why) -> None:
        park(self, slot, why)
        self.checkpoints.leave(slot)

    patch.setattr(Room, "_park", park_and_forget)


def passes_the_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Checkpoints, "cut", lambda self, slot, end: end)


def none_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Checkpoints, "begin", lambda self, slot, end: None)


def taken_where_a_chunk_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Checkpoints, "begin", lambda self, slot, end: self._units.take())


def none_where_chats_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sharing, "enter", lambda self, slot: self._checkpoints.enter(slot))


def taken_where_a_chat_only_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PagePool, "followed", lambda self, name: True)


def gone_and_still_follows(patch: pytest.MonkeyPatch) -> None:
    drop = PrefixIndex.drop

    def drop_and_count(self: PrefixIndex, page: int) -> None:
        followers = self._followers.copy()
        drop(self, page)
        self._followers = followers

    patch.setattr(PrefixIndex, "drop", drop_and_count)


def came_back_and_follows_none(patch: pytest.MonkeyPatch) -> None:
    returned = Parking._returned

    def returned_alone(self: Parking, slot: Slot) -> None:
        with pytest.MonkeyPatch.context() as now:
            now.setattr(Slot, "before", lambda self, page: b"")
            returned(self, slot)

    patch.setattr(Parking, "_returned", returned_alone)


def keep_branch(patch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    own = getattr(owner, method)

    def own_and_keep(self: Any, slot: Slot) -> None:
        before = slot.branch
        own(self, slot)
        slot.branch = slot.branch or before

    patch.setattr(owner, method, own_and_keep)


def place_stays(patch: pytest.MonkeyPatch) -> None:
    keep_branch(patch, Sharing, "enter")


def place_stays_in_a_shift(patch: pytest.MonkeyPatch) -> None:
    keep_branch(patch, Room, "shift")


def not_awaited(patch: pytest.MonkeyPatch) -> None:
    awaited = Sharing._awaited

    def awaited_elsewhere(self: Sharing, other: Slot, found: int) -> int:
        branch, other.branch = other.branch, 0
        page = awaited(self, other, found)
        other.branch = branch
        return page

    patch.setattr(Sharing, "_awaited", awaited_elsewhere)


PLANTS: list[Plant] = [
    pages_are_enough,
    found_before_it_has_landed,
    taken_keeps_its_name,
    named_as_the_page_before,
    cancelled_is_lost,
    ended_stays_held,
    not_copied,
    copied_again,
    passes_the_place,
    none_is_taken,
    taken_where_a_chunk_ends,
]

OF_BRANCHES: list[Plant] = [
    none_where_chats_part,
    taken_where_a_chat_only_goes_on,
    gone_and_still_follows,
    place_stays,
]


@pytest.mark.parametrize("plant", PLANTS)
def test_the_machine_finds_it(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    machine_finds_it(StatesMachine)


@pytest.mark.parametrize("plant", OF_BRANCHES)
def test_the_machine_of_branches_finds_it(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    machine_finds_it(BranchMachine)


@pytest.mark.parametrize(
    ("plant", "scene"),
    [
        (held_is_taken, about_to_begin),
        (dropped_stays_held, dropped_early),
        (parked_forgets_where_it_begins, parked_early),
        (place_stays, begins_anew),
        (place_stays_in_a_shift, is_shifted),
        (came_back_and_follows_none, came_back),
        (not_awaited, third_waits),
    ],
)
def test_a_scene_finds_it(plant: Plant, scene: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    scene()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        scene()
