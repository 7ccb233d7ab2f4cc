"""The machine of test_planner_machine.py finds each of these bugs; without this it would prove nothing.

1 a chat gives its pages back and goes on using them; 2 a page that was taken stays free; 3 the pages of a cancelled
chat are lost; 4 a chat that gave back takes its lost rows for computed; 5 prompt rows are scored twice; 6 a replay
samples again; 7 the leader gives its pages back; 8 prefill comes before decode; 9 a step has too many tokens; 10 a step
has too many rows with logits; 11 a new request passes the queue; 12 who gave back last comes back first; 13 a chat
starts on pages that are promised to others; 14 a full context does not end the chat. With steps in flight: 15 a result
goes to the next chat in the slot; 16 or to the next with that id; 17 a chat is computed again while a token of it is in
flight; 18 a chat goes on behind the last token that it may have, in flight; 19 the page of a token in flight is not
taken; 20 or not promised; 21 a chat gives its pages back again for a token in flight; 22 a stop id that lands late ends
nothing; 23 the pages of a chat that stops with a chunk in flight are lost; 24 who gives back forgets its token in
flight; 25 who waits to be computed again does not end.
"""

from collections.abc import Callable

import pytest

from parkway.plan.pages import PagePool
from parkway.plan.planner import Planner, _Draft
from parkway.plan.slot import Slot, State
from parkway.plan.step import Chunk
from parkway.request import Request

from .planted import Plant, machine_finds_it


def pages_used_after_giving(patch: pytest.MonkeyPatch) -> None:
    def leave(self: Planner, slot: Slot) -> None:
        self._running.remove(slot)
        self._pool.give(slot.pages)

    patch.setattr(Planner, "_leave", leave)


def taken_page_stays_free(patch: pytest.MonkeyPatch) -> None:
    take = PagePool.take

    def take_and_free_one(self: PagePool, count: int) -> tuple[int, ...] | None:
        pages = take(self, count)
        if pages:
            self._free.append(pages[0])
        return pages

    patch.setattr(PagePool, "take", take_and_free_one)


def cancelled_pages_lost(patch: pytest.MonkeyPatch) -> None:
    end = Planner._end

    def end_without_pages(self: Planner, slot: Slot, state: State) -> None:
        if state is State.CANCELLED:
            slot.pages = ()
        end(self, slot, state)

    patch.setattr(Planner, "_end", end_without_pages)


def lost_rows_taken_for_computed(patch: pytest.MonkeyPatch) -> None:
    give_back, enter = Planner._give_back, Slot.enter

    def give_back_and_go_on(self: Planner, slot: Slot, step: _Draft) -> None:
        computed = slot.computed
        give_back(self, slot, step)
        slot.computed = computed

    def enter_and_go_on(self: Slot, pages: tuple[int, ...]) -> None:
        computed = self.computed
        enter(self, pages)
        self.computed = max(computed, self.computed)

    patch.setattr(Planner, "_give_back", give_back_and_go_on)
    patch.setattr(Slot, "enter", enter_and_go_on)


def prompt_scored_twice(patch: pytest.MonkeyPatch) -> None:
    give_back = Planner._give_back

    def give_back_scores_too(self: Planner, slot: Slot, step: _Draft) -> None:
        give_back(self, slot, step)
        if slot.request.sampling.prompt_logprobs is not None:
            slot.scored = 0

    patch.setattr(Planner, "_give_back", give_back_scores_too)


def replay_samples_again(patch: pytest.MonkeyPatch) -> None:
    def samples(self: Slot, end: int) -> bool:
        return end in (len(self.tokens), len(self.request.prompt)) and len(self.tokens) < self.max_length

    patch.setattr(Slot, "samples", samples)


def leader_gives_back(patch: pytest.MonkeyPatch) -> None:
    take_pages = Planner._take_pages

    def take_pages_of_the_oldest(self: Planner, slot: Slot, end: int, step: _Draft) -> bool:
        self._running.reverse()
        taken = take_pages(self, slot, end, step)
        self._running.reverse()
        return taken

    patch.setattr(Planner, "_take_pages", take_pages_of_the_oldest)


def prefill_first(patch: pytest.MonkeyPatch) -> None:
    decoders, prefills = Planner._add_decoders, Planner._add_prefills
    patch.setattr(Planner, "_add_decoders", prefills)
    patch.setattr(Planner, "_add_prefills", decoders)


def token_budget_ignored(patch: pytest.MonkeyPatch) -> None:
    prefill_end = Planner._prefill_end

    def prefill_end_of_full_step(self: Planner, slot: Slot, step: _Draft) -> int:
        return prefill_end(self, slot, _Draft(self._limits.batch_tokens, step.rows_left))

    patch.setattr(Planner, "_prefill_end", prefill_end_of_full_step)


def logit_rows_ignored(patch: pytest.MonkeyPatch) -> None:
    prefill_end = Planner._prefill_end

    def prefill_end_of_full_step(self: Planner, slot: Slot, step: _Draft) -> int:
        return prefill_end(self, slot, _Draft(step.tokens_left, self._limits.logit_rows))

    patch.setattr(Planner, "_prefill_end", prefill_end_of_full_step)


def queue_passed(patch: pytest.MonkeyPatch) -> None:
    arrive = Planner.arrive

    def arrive_first(self: Planner, request: Request) -> None:
        arrive(self, request)
        self._arrived.move_to_end(request.id, last=False)

    patch.setattr(Planner, "arrive", arrive_first)


def last_given_back_first(patch: pytest.MonkeyPatch) -> None:
    give_back = Planner._give_back

    def give_back_first(self: Planner, slot: Slot, step: _Draft) -> None:
        give_back(self, slot, step)
        self._preempted.rotate()

    patch.setattr(Planner, "_give_back", give_back_first)


def promised_pages_ignored(patch: pytest.MonkeyPatch) -> None:
    start = Planner._start

    def start_as_if_nobody_ran(self: Planner) -> None:
        running, self._running = self._running, []
        start(self)
        self._running[:0] = running

    patch.setattr(Planner, "_start", start_as_if_nobody_ran)


def full_context_forgotten(patch: pytest.MonkeyPatch) -> None:
    waiting = Slot.waiting.__func__  # type: ignore[attr-defined]

    def waiting_longer(cls: type[Slot], request: Request, n_ctx: int) -> Slot:
        slot: Slot = waiting(cls, request, n_ctx + 1)
        return slot

    patch.setattr(Slot, "waiting", classmethod(waiting_longer))


def result_goes_to(patch: pytest.MonkeyPatch, takes: Callable[[Slot, Chunk], bool]) -> None:
    """Who is in the chunk's slot now gets the result, if it `takes` it."""
    landed = Planner._landed

    def landed_in_the_slot(self: Planner, chunk: Chunk) -> tuple[Slot, int]:
        planned, stay = landed(self, chunk)
        now = self._slots[chunk.slot]
        return (now if now and takes(now, chunk) else planned), stay

    patch.setattr(Planner, "_landed", landed_in_the_slot)


def result_for_the_next_in_the_slot(patch: pytest.MonkeyPatch) -> None:
    result_goes_to(patch, lambda now, chunk: True)


def result_for_the_next_with_that_id(patch: pytest.MonkeyPatch) -> None:
    result_goes_to(patch, lambda now, chunk: now.request.id == chunk.request.id)


def computed_again_with_a_token_in_flight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "pending", 0)


def length_of_known_tokens_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "full", property(lambda self: len(self.tokens) == self.max_length))


def page_in_flight_not_taken(patch: pytest.MonkeyPatch) -> None:
    take_pages = Planner._take_pages

    def take_known_pages(self: Planner, slot: Slot, end: int, step: _Draft) -> bool:
        return take_pages(self, slot, min(end, len(slot.tokens)), step)

    patch.setattr(Planner, "_take_pages", take_known_pages)


def page_in_flight_not_promised(patch: pytest.MonkeyPatch) -> None:
    start = Planner._start

    def start_as_if_nothing_flew(self: Planner) -> None:
        lengths = {slot: slot.length for slot in self._running}
        for slot in lengths:
            slot.length = len(slot.tokens)
        start(self)
        for slot, length in lengths.items():
            slot.length = length

    patch.setattr(Planner, "_start", start_as_if_nothing_flew)


def gives_back_again_for_a_token_in_flight(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "answer_tokens", property(lambda self: len(self.tokens) - len(self.request.prompt)))


def ends_nothing(patch: pytest.MonkeyPatch, when: Callable[[Slot], bool]) -> None:
    finish_reason = Slot.finish_reason.fget  # type: ignore[attr-defined]
    patch.setattr(Slot, "finish_reason", property(lambda self: None if when(self) else finish_reason(self)))


def late_stop_ends_nothing(patch: pytest.MonkeyPatch) -> None:
    ends_nothing(patch, lambda slot: slot.pending > 0)


def pages_of_a_late_stop_lost(patch: pytest.MonkeyPatch) -> None:
    end = Planner._end

    def end_without_pages(self: Planner, slot: Slot, state: State) -> None:
        if state is State.FINISHED and slot.pending:
            slot.pages = ()
        end(self, slot, state)

    patch.setattr(Planner, "_end", end_without_pages)


def token_in_flight_forgotten(patch: pytest.MonkeyPatch) -> None:
    give_back = Planner._give_back

    def give_back_and_forget(self: Planner, slot: Slot, step: _Draft) -> None:
        give_back(self, slot, step)
        slot.length = len(slot.tokens)

    patch.setattr(Planner, "_give_back", give_back_and_forget)


def waiting_chat_does_not_end(patch: pytest.MonkeyPatch) -> None:
    ends_nothing(patch, lambda slot: slot.state is State.PREEMPTED)


PLANTS: list[Plant] = [
    pages_used_after_giving,
    taken_page_stays_free,
    cancelled_pages_lost,
    lost_rows_taken_for_computed,
    prompt_scored_twice,
    replay_samples_again,
    leader_gives_back,
    prefill_first,
    token_budget_ignored,
    logit_rows_ignored,
    queue_passed,
    last_given_back_first,
    promised_pages_ignored,
    full_context_forgotten,
    result_for_the_next_in_the_slot,
    result_for_the_next_with_that_id,
    computed_again_with_a_token_in_flight,
    length_of_known_tokens_only,
    page_in_flight_not_taken,
    page_in_flight_not_promised,
    gives_back_again_for_a_token_in_flight,
    late_stop_ends_nothing,
    pages_of_a_late_stop_lost,
    token_in_flight_forgotten,
    waiting_chat_does_not_end,
]


@pytest.mark.parametrize("plant", PLANTS)
def test_the_machine_finds_it(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    machine_finds_it()
