"""The machine of test_planner_machine.py finds each of these bugs; without this it would prove nothing.

1 a chat is parked and goes on using its pages; 2 a page that was taken stays free; 3 the pages of a cancelled chat are
lost; 4 a chat that was dropped takes its lost rows for computed; 5 prompt rows are scored twice; 6 a replay samples
again; 7 prefill comes before decode; 8 a step has too many tokens; 9 a step has too many rows with logits; 10 a new
request passes the queue; 11 a chat starts on pages that are promised to others; 12 a full context does not end the
chat; 13 chats are ended although they could be parked. With steps in flight: 14 a result goes to the next chat in the
slot; 15 or to the next with that id; 16 a chat comes back while a token of it is in flight; 17 a chat goes on behind
the last token that it may have, in flight; 18 the page of a token in flight is not taken; 19 a chat is parked on
purpose again for a token in flight; 20 a stop id that lands late ends nothing; 21 the pages of a chat that stops with
a chunk in flight are lost; 22 who is dropped forgets its token in flight; 23 who is out does not end.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from parkway.plan.budget import reach
from parkway.plan.draft import Draft
from parkway.plan.limits import Pace
from parkway.plan.pages import PagePool
from parkway.plan.planner import Planner
from parkway.plan.room import Room
from parkway.plan.shares import Shares
from parkway.plan.slot import Slot, State
from parkway.plan.step import Chunk
from parkway.request import Request

from .planted import Plant, machine_finds_it


def pages_used_after_giving(patch: pytest.MonkeyPatch) -> None:
    drop = Room._drop

    def drop_and_keep(self: Room, slot: Slot) -> None:
        pages = slot.pages
        drop(self, slot)
        slot.pages = pages

    patch.setattr(Room, "_drop", drop_and_keep)


def taken_page_stays_free(patch: pytest.MonkeyPatch) -> None:
    take = PagePool.take

    def take_and_free_one(self: PagePool, count: int) -> tuple[int, ...] | None:
        pages = take(self, count)
        if pages:
            self._free.append(pages[0])
        return pages

    patch.setattr(PagePool, "take", take_and_free_one)


def cancelled_pages_lost(patch: pytest.MonkeyPatch) -> None:
    end = Room.end

    def end_without_pages(self: Room, slot: Slot, state: State) -> None:
        if state is State.CANCELLED:
            slot.pages = ()
        end(self, slot, state)

    patch.setattr(Room, "end", end_without_pages)


def lost_rows_taken_for_computed(patch: pytest.MonkeyPatch) -> None:
    enter = Slot.enter

    def enter_and_go_on(self: Slot, pages: tuple[int, ...], now: float) -> None:
        enter(self, pages, now)
        self.computed = max(self.replayed, self.computed)

    patch.setattr(Slot, "enter", enter_and_go_on)


def prompt_scored_twice(patch: pytest.MonkeyPatch) -> None:
    drop = Slot.drop

    def drop_scores_too(self: Slot) -> None:
        drop(self)
        if self.request.sampling.prompt_logprobs is not None or self.request.sampling.embed == "mean":
            self.scored = 0

    patch.setattr(Slot, "drop", drop_scores_too)


def replay_samples_again(patch: pytest.MonkeyPatch) -> None:
    def samples(self: Slot, end: int) -> bool:
        return end in (len(self.tokens), len(self.request.prompt)) and len(self.tokens) < self.max_length

    patch.setattr(Slot, "samples", samples)


def prefill_first(patch: pytest.MonkeyPatch) -> None:
    decoders, prefills = Planner._add_decoders, Planner._add_prefills
    patch.setattr(Planner, "_add_decoders", prefills)
    patch.setattr(Planner, "_add_prefills", decoders)


def token_budget_ignored(patch: pytest.MonkeyPatch) -> None:
    add = Draft.prefill

    def add_for_nothing(self: Draft, slot: Slot, end: int) -> None:
        tokens = self._tokens_left
        add(self, slot, end)
        self._tokens_left = tokens

    patch.setattr(Draft, "prefill", add_for_nothing)


def logit_rows_ignored(patch: pytest.MonkeyPatch) -> None:
    add = Draft.prefill

    def add_for_nothing(self: Draft, slot: Slot, end: int) -> None:
        rows = self._rows_left
        add(self, slot, end)
        self._rows_left = rows

    patch.setattr(Draft, "prefill", add_for_nothing)


def queue_passed(patch: pytest.MonkeyPatch) -> None:
    arrive = Shares.arrive

    def arrive_first(self: Shares, slot: Slot, now: float) -> None:
        arrive(self, slot, now)
        queue = self._waiting[slot.request.client]
        queue[:] = sorted((at, -abs(number), each) for at, number, each in queue)

    patch.setattr(Shares, "arrive", arrive_first)


def clients_ignored(patch: pytest.MonkeyPatch) -> None:
    def first_come(self: Shares, chats: Counter[str]) -> str:
        return min(self._waiting, key=lambda client: self._waiting[client][0][:2])

    patch.setattr(Shares, "_whose", first_come)


def turns_forgotten(patch: pytest.MonkeyPatch) -> None:
    choose = Shares.next

    def forgets(self: Shares, inside: Iterable[Slot]) -> Slot:
        slot = choose(self, inside)
        if slot.request.client in self._asks:
            self._asks[slot.request.client] = 0
        return slot

    patch.setattr(Shares, "next", forgets)


def promised_pages_ignored(patch: pytest.MonkeyPatch) -> None:
    def needs(self: Room, slot: Slot, found: list[int], *, behind: int = 0) -> int:
        return reach(slot, 0) - self.pool.held(found) + behind

    patch.setattr(Room, "_needs", needs)


def full_context_forgotten(patch: pytest.MonkeyPatch) -> None:
    waiting = Slot.waiting.__func__  # type: ignore[attr-defined]

    def waiting_longer(cls: type[Slot], request: Request, n_ctx: int, *, shifts: bool) -> Slot:
        slot: Slot = waiting(cls, request, n_ctx + 1, shifts=shifts)
        return slot

    patch.setattr(Slot, "waiting", classmethod(waiting_longer))


def result_goes_to(patch: pytest.MonkeyPatch, takes: Callable[[Slot, Chunk], bool]) -> None:
    """Who is in the chunk's slot now gets the result, if it `takes` it."""
    landed = Planner._landed

    def landed_in_the_slot(self: Planner, chunk: Chunk) -> Slot:
        planned = landed(self, chunk)
        now = self._chats.slots[chunk.slot]
        return now if now and takes(now, chunk) else planned

    patch.setattr(Planner, "_landed", landed_in_the_slot)


def result_for_the_next_in_the_slot(patch: pytest.MonkeyPatch) -> None:
    result_goes_to(patch, lambda now, chunk: True)


def result_for_the_next_with_that_id(patch: pytest.MonkeyPatch) -> None:
    result_goes_to(patch, lambda now, chunk: now.request.id == chunk.request.id)


def back_with_a_token_in_flight(patch: pytest.MonkeyPatch) -> None:
    ready = Room._ready
    patch.setattr(Room, "_ready", lambda self, s: s.state is State.PREEMPTED if s.stay else ready(self, s))


def length_of_known_tokens_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "full", property(lambda self: len(self.tokens) == self.max_length))


def page_in_flight_not_taken(patch: pytest.MonkeyPatch) -> None:
    take = Room.take
    patch.setattr(Room, "take", lambda self, slot, end: take(self, slot, min(end, len(slot.tokens))))


def parked_again_for_a_token_in_flight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "answer_tokens", property(lambda self: len(self.tokens) - len(self.request.prompt)))


def ends_nothing(patch: pytest.MonkeyPatch, when: Callable[[Slot], bool]) -> None:
    finish_reason = Slot.finish_reason.fget  # type: ignore[attr-defined]
    patch.setattr(Slot, "finish_reason", property(lambda self: None if when(self) else finish_reason(self)))


def late_stop_ends_nothing(patch: pytest.MonkeyPatch) -> None:
    ends_nothing(patch, lambda slot: slot.length > len(slot.tokens))


def pages_of_a_late_stop_lost(patch: pytest.MonkeyPatch) -> None:
    end = Room.end

    def end_without_pages(self: Room, slot: Slot, state: State) -> None:
        if state is State.FINISHED and slot.flying:
            slot.pages = ()
        end(self, slot, state)

    patch.setattr(Room, "end", end_without_pages)


def token_in_flight_forgotten(patch: pytest.MonkeyPatch) -> None:
    drop = Slot.drop

    def drop_and_forget(self: Slot) -> None:
        drop(self)
        self.length = len(self.tokens)

    patch.setattr(Slot, "drop", drop_and_forget)


def who_is_out_does_not_end(patch: pytest.MonkeyPatch) -> None:
    ends_nothing(patch, lambda slot: slot.state in (State.PREEMPTED, State.PREEMPTING))


def ended_instead_of_parked(patch: pytest.MonkeyPatch) -> None:
    arrange = Room.arrange

    def arrange_without_parks(self: Room, pace: Pace) -> None:
        self._limits = dataclasses.replace(self._limits, parks=False)
        arrange(self, pace)

    patch.setattr(Room, "arrange", arrange_without_parks)


PLANTS: list[Plant] = [
    pages_used_after_giving,
    taken_page_stays_free,
    cancelled_pages_lost,
    lost_rows_taken_for_computed,
    prompt_scored_twice,
    replay_samples_again,
    prefill_first,
    token_budget_ignored,
    logit_rows_ignored,
    queue_passed,
    clients_ignored,
    turns_forgotten,
    promised_pages_ignored,
    full_context_forgotten,
    ended_instead_of_parked,
    result_for_the_next_in_the_slot,
    result_for_the_next_with_that_id,
    back_with_a_token_in_flight,
    length_of_known_tokens_only,
    page_in_flight_not_taken,
    parked_again_for_a_token_in_flight,
    late_stop_ends_nothing,
    pages_of_a_late_stop_lost,
    token_in_flight_forgotten,
    who_is_out_does_not_end,
]


@pytest.mark.parametrize("plant", PLANTS)
def test_the_machine_finds_it(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    machine_finds_it()
