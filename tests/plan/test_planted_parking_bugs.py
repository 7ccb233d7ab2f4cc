"""The machine of test_planner_machine.py finds each of these bugs of parking; see test_planted_bugs.py. One, for
which it needs long, is found in a scene of test_parking.py.

1 a park's pages are freed when its copy is planned; 2 a page is named before its step has landed; 3 a host page that a
restore needs is given to others; 4 a cancel drops the pins of a copy; 5 a page that comes back is named before its
copy has landed; 6 `resumed` is said before that; 7 `preempted` is said before the last token; 8 a chat computes before
its pages are back; 9 a refused copy is forgotten; 10 a second park trusts the host's copy of a page that has been
written since; 11 a replay is one token short; 12 the host's pages are not given back; 13 a copy takes a page that is
not its own; 14 who was dropped is not said to have been computed again; 15 a page that is saved ahead is named too
early; 16 pages of an ended chat's copy are lost; 17 a copy back does not wait for a step that still uses its page.
"""

from collections.abc import Iterable, Set
from typing import Any

import pytest

from parkway.plan.copies import Owner
from parkway.plan.draft import Draft
from parkway.plan.notices import Notices
from parkway.plan.pages import PagePool
from parkway.plan.parking import Parking
from parkway.plan.planner import Planner
from parkway.plan.room import Room
from parkway.plan.slot import Slot, State
from parkway.plan.step import PAGE_TOKENS, Chunk

from .planted import Plant, machine_finds_it
from .test_parking import test_refused_copy_is_a_park_by_recompute as refused
from .test_planner_machine import CrowdedMachine, LongMachine


def freed_when_planned(patch: pytest.MonkeyPatch) -> None:
    leave = Parking.leave

    def leave_at_once(self: Parking, slot: Slot) -> bool:
        begun = leave(self, slot)
        if begun and slot.state is State.PREEMPTING:
            self._pool.unpin(slot.pages)
            self._pool.give(slot.pages)
            slot.pages = ()
        return begun

    patch.setattr(Parking, "leave", leave_at_once)


def named_before_the_step_landed(patch: pytest.MonkeyPatch) -> None:
    advance = Planner._advance

    def advance_and_seal(self: Planner, step: Draft) -> tuple[Chunk, ...]:
        chunks = advance(self, step)
        for slot, end in step.ends.items():
            self._seal(slot, min(end, len(slot.tokens)) // PAGE_TOKENS)
        return chunks

    patch.setattr(Planner, "_advance", advance_and_seal)


def host_page_evicted_that_is_needed(patch: pytest.MonkeyPatch) -> None:
    leave = Parking._left

    def leave_and_let_go(self: Parking, slot: Slot) -> None:
        leave(self, slot)
        self.host.give(reversed(slot.host))

    patch.setattr(Parking, "_left", leave_and_let_go)


def pin_dropped_by_a_cancel(patch: pytest.MonkeyPatch) -> None:
    end = Room.end

    def end_with_its_copies(self: Room, slot: Slot, state: State) -> None:
        for copy, owner, _ in self.parking._open.values():
            if owner is slot:
                self.pool.unpin(copy.targets if copy.from_host else copy.sources)
        end(self, slot, state)

    patch.setattr(Room, "end", end_with_its_copies)


def named_before_its_copy_landed(patch: pytest.MonkeyPatch) -> None:
    come_back = Parking.come_back

    def come_back_named(self: Parking, slot: Slot, in_flight: Set[int]) -> None:
        come_back(self, slot, in_flight)
        for page in range(slot.sealed):
            self._pool.seal(slot.pages[page], slot.name(page))

    patch.setattr(Parking, "come_back", come_back_named)


def resumed_before_landing(patch: pytest.MonkeyPatch) -> None:
    comes_in, caught_up = Room._comes_in, Room.caught_up

    def come_back_told(self: Room, slot: Slot, *, behind: int) -> bool:
        if not comes_in(self, slot, behind=behind):
            return False
        if slot.state is State.RESTORING and slot.announced:
            self.notices.returned(slot, self.pace.now)
        return True

    def caught_up_silently(self: Room, slot: Slot) -> None:
        if slot.announced:
            caught_up(self, slot)
        else:
            self.resumes += 1

    patch.setattr(Room, "_comes_in", come_back_told)
    patch.setattr(Room, "caught_up", caught_up_silently)


def preempted_before_the_last_token(patch: pytest.MonkeyPatch) -> None:
    left = Notices.left

    def announce(self: Room, slot: Slot) -> None:
        if not slot.announced and slot.state in (State.PREEMPTING, State.PREEMPTED):
            flying, slot.flying = slot.flying, 0
            left(self.notices, slot, ahead=0)
            slot.flying = flying

    patch.setattr(Room, "announce", announce)


def computes_before_its_pages_are_back(patch: pytest.MonkeyPatch) -> None:
    come_back, landed = Parking.come_back, Parking.landed

    def come_back_at_once(self: Parking, slot: Slot, in_flight: Set[int]) -> None:
        come_back(self, slot, in_flight)
        if slot.state is State.RESTORING:
            self._returned(slot)

    def landed_long_ago(self: Parking, copy_id: int) -> Slot | None:
        if self._open[copy_id][0].owner is not Owner.RESTORE:
            return landed(self, copy_id)
        self._unpinned(copy_id)
        return None

    patch.setattr(Parking, "come_back", come_back_at_once)
    patch.setattr(Parking, "landed", landed_long_ago)


def refused_copy_forgotten(patch: pytest.MonkeyPatch) -> None:
    landed = Parking.landed

    def refused_as_if_landed(self: Parking, copy_id: int) -> Slot | None:
        landed(self, copy_id)
        return None

    patch.setattr(Parking, "refused", refused_as_if_landed)


def unsealed_page_kept_by_name(patch: pytest.MonkeyPatch) -> None:
    """The host's page that a chat left behind is found again by number, whatever has been computed since."""
    returned = Parking._returned
    kept: dict[tuple[Slot, int], int] = {}

    def returned_and_noted(self: Parking, slot: Slot) -> None:
        kept.update({(slot, page): number for page, number in enumerate(slot.host)})
        returned(self, slot)

    def kept_by_number(self: Parking, slot: Slot, page: int) -> int | None:
        number = kept.get((slot, page))
        return number if number is not None and number in self.host._free else None

    def share(self: PagePool, pages: Iterable[int]) -> None:
        for page in pages:
            self._cached.pop(page, None)
            if page in self._free:
                self._free.remove(page)
            self._references[page] += 1

    patch.setattr(Parking, "_returned", returned_and_noted)
    patch.setattr(Parking, "_kept", kept_by_number)
    patch.setattr(PagePool, "share", share)


def replay_one_token_short(patch: pytest.MonkeyPatch) -> None:
    drop = Slot.drop

    def drop_one_token_less(self: Slot) -> None:
        if self.answer_tokens and len(self.tokens) == self.length:
            self.tokens.pop()
            self.length -= 1
        drop(self)

    patch.setattr(Slot, "drop", drop_one_token_less)


def host_pages_not_given_back(patch: pytest.MonkeyPatch) -> None:
    returned = Parking._returned

    def returned_with_its_host_pages(self: Parking, slot: Slot) -> None:
        slot.host = ()
        returned(self, slot)

    patch.setattr(Parking, "_returned", returned_with_its_host_pages)


def restored_over_others(patch: pytest.MonkeyPatch) -> None:
    come_back = Parking.come_back

    def come_back_over_a_page_in_use(self: Parking, slot: Slot, in_flight: Set[int]) -> None:
        come_back(self, slot, in_flight)
        for at, copy in enumerate(self.planned):
            if copy.owner is Owner.RESTORE:
                wrong = (copy.targets[0] + 1) % len(self._pool._references)
                self.planned[at] = type(copy)(copy.id, copy.owner, copy.sources, (wrong, *copy.targets[1:]))

    patch.setattr(Parking, "come_back", come_back_over_a_page_in_use)


def not_said_to_be_recomputed(patch: pytest.MonkeyPatch) -> None:
    returned = Notices.returned

    def returned_whole(self: Notices, slot: Slot, now: float) -> None:
        slot.replayed = 0
        returned(self, slot, now)

    patch.setattr(Notices, "returned", returned_whole)


def saved_ahead_named_too_early(patch: pytest.MonkeyPatch) -> None:
    begin = Parking._begin

    def begin_named(self: Parking, owner: Owner, slot: Slot, *arguments: Any) -> None:
        begin(self, owner, slot, *arguments)
        if owner is Owner.SAVE_AHEAD:
            self._name_on_host(slot, arguments[0], arguments[2])

    patch.setattr(Parking, "_begin", begin_named)


def copy_of_an_ended_chat_keeps_its_pages(patch: pytest.MonkeyPatch) -> None:
    unpinned = Parking._unpinned

    def unpinned_if_it_is_here(self: Parking, copy_id: int) -> Any:
        copy, slot, _ = self._open[copy_id]
        gone = unpinned(self, copy_id)
        if slot.ended and copy.owner is not Owner.SAVE_AHEAD:
            self._pool._pins[copy.targets[0] if copy.from_host else copy.sources[0]] += 1
        return gone

    patch.setattr(Parking, "_unpinned", unpinned_if_it_is_here)


def copies_back_wait_for_no_step(patch: pytest.MonkeyPatch) -> None:
    come_back = Parking.come_back

    def come_back_without_waiting(self: Parking, slot: Slot, in_flight: Set[int]) -> None:
        come_back(self, slot, frozenset())

    patch.setattr(Parking, "come_back", come_back_without_waiting)


PLANTS: list[Plant] = [
    freed_when_planned,
    named_before_the_step_landed,
    host_page_evicted_that_is_needed,
    pin_dropped_by_a_cancel,
    named_before_its_copy_landed,
    resumed_before_landing,
    preempted_before_the_last_token,
    computes_before_its_pages_are_back,
    unsealed_page_kept_by_name,
    replay_one_token_short,
    host_pages_not_given_back,
    restored_over_others,
    not_said_to_be_recomputed,
    saved_ahead_named_too_early,
    copy_of_an_ended_chat_keeps_its_pages,
    copies_back_wait_for_no_step,
]


@pytest.mark.parametrize("plant", PLANTS)
def test_the_machine_finds_it(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    machine_finds_it(LongMachine if plant is replay_one_token_short else CrowdedMachine)


def test_a_scene_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    refused()
    refused_copy_forgotten(monkeypatch)
    with pytest.raises(AssertionError):
        refused()
