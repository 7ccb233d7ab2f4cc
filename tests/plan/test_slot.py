"""A slot's states and moves."""

import pytest

from parkway.plan.slot import MOVES, Slot, State
from parkway.plan.step import PENDING
from parkway.request import Request, SamplingParams


def slot_in(state: State) -> Slot:
    request = Request(id=1, prompt=[5, 6, 7], sampling=SamplingParams(max_tokens=2), seed=0, stop_ids=frozenset({7, 9}))
    slot = Slot.waiting(request, n_ctx=8)
    slot.index = 0
    slot.state = state
    return slot


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_only_the_moves_of_the_table_are_legal(before: State, after: State) -> None:
    slot = slot_in(before)
    if after in MOVES[before]:
        slot.move(after)
        assert slot.state is after
    else:
        with pytest.raises(AssertionError, match="can't become"):
            slot.move(after)


def test_every_state_that_lives_can_be_cancelled_and_every_state_can_be_reached() -> None:
    dead = {State.FINISHED, State.CANCELLED}
    assert all((State.CANCELLED in moves) == (state not in dead) for state, moves in MOVES.items())
    assert frozenset().union(*MOVES.values()) == set(State)


@pytest.mark.parametrize(
    ("answer", "reason"), [([], None), ([8], None), ([9], "stop"), ([8, 9], "stop"), ([8, 8], "length")]
)
def test_finish_reason(answer: list[int], reason: str | None) -> None:
    """The prompt's own last token is a stop token here, and ends nothing."""
    slot = slot_in(State.DECODE)
    slot.tokens += answer
    assert slot.finish_reason == reason


def test_advance_decodes_once_everything_known_is_computed() -> None:
    slot = slot_in(State.PREFILL)
    slot.pages = (4,)
    first, last = slot.advance(2), slot.advance(3)
    assert (first.tokens, first.samples, last.tokens, last.samples) == ((5, 6), False, (7,), True)
    assert slot.state is State.DECODE


def test_token_in_flight_counts_before_it_is_known() -> None:
    slot = slot_in(State.PREFILL)
    slot.advance(3)
    assert (slot.length, slot.answer_tokens, slot.finish_reason) == (4, 1, None)
    assert slot.advance(4).tokens == (PENDING,)
    assert (slot.length, slot.flying, slot.full) == (5, 2, True)
    slot.tokens += [8, 8]
    assert slot.finish_reason == "length"


def test_prompt_without_an_answer_is_full_once_it_is_computed() -> None:
    request = Request(id=1, prompt=[5, 6, 7], sampling=SamplingParams(max_tokens=0), seed=0)
    slot = Slot.waiting(request, n_ctx=8)
    assert not slot.full
    slot.advance(3)
    assert slot.full


def test_dropped_tokens_are_replayed_up_to_where_they_were_lost() -> None:
    slot = slot_in(State.PREFILL)
    slot.advance(3)
    slot.tokens.append(8)
    slot.drop()
    slot.move(State.PREEMPTED)
    assert (slot.computed, slot.replayed, slot.recomputes, slot.returns_to) == (0, 3, 1, State.REPLAYING)
    slot.move(slot.returns_to)
    assert slot.advance(2).samples is False
    assert slot.state is State.REPLAYING
    assert slot.advance(4).samples
    assert slot.view.state == "decode"


def test_nothing_lost_is_nothing_to_replay() -> None:
    slot = slot_in(State.PREFILL)
    slot.drop()
    assert (slot.recomputes, slot.returns_to) == (0, State.PREFILL)


def test_view() -> None:
    slot = slot_in(State.PREFILL)
    slot.enter((3,), now=2.0)
    assert (slot.view.state, slot.view.pages, slot.view.computed, slot.view.parks) == ("prefill", 1, 64, 0)
    assert (slot.cached, slot.entered, slot.entered_at) == (64, 2.0, 64)
