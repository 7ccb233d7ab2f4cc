"""The planner in single scenes with steps in flight; test_planner_machine.py has everything at once."""

import pytest

from parkway.plan.planner import IGNORED
from parkway.plan.step import PENDING, Chunk, StepPlan
from parkway.request import Request, SamplingParams

from .test_planner import limits, planner_with, request, rows


def test_a_chat_decodes_on_while_its_token_is_in_flight() -> None:
    planner = planner_with(limits(ahead=2), request(0, 5))
    plans = [planner.plan() for _ in range(3)]
    assert [rows(plan) for plan in plans] == [[(0, 0, 5)], [(0, 5, 6)], [(0, 6, 7)]]
    assert [plan.chunks[0].tokens for plan in plans] == [(0, 1, 2, 3, 4), (PENDING,), (PENDING,)]
    assert all(plan.chunks[0].samples for plan in plans)
    assert planner.in_flight == 3
    with pytest.raises(AssertionError, match="results of 3 steps are missing"):
        planner.plan()


def test_a_token_that_has_landed_is_named() -> None:
    planner = planner_with(limits(ahead=1), request(0, 5))
    first = planner.plan()
    planner.sampled(first.chunks[0], 42)
    assert planner.plan().chunks[0].tokens == (42,)


def test_pieces_of_a_prompt_need_no_result() -> None:
    planner = planner_with(limits(ahead=1, chunk_tokens=3), request(0, 5))
    plans = [planner.plan() for _ in range(2)]
    assert [plan.chunks[0].tokens for plan in plans] == [(0, 1, 2), (3, 4)]


def test_nothing_follows_the_last_token_that_a_chat_may_have() -> None:
    planner = planner_with(limits(ahead=1), request(0, 5, max_tokens=1))
    plan = planner.plan()
    assert planner.plan() == StepPlan()
    assert not planner.idle
    assert planner.sampled(plan.chunks[0], 7) == "length"
    assert planner.idle


def test_a_stop_id_that_lands_late_frees_everything_at_once() -> None:
    ends = Request(id=0, prompt=[1] * 5, sampling=SamplingParams(), seed=0, stop_ids=frozenset({9}))
    planner = planner_with(limits(ahead=1, slots=1), ends, request(1, 5))
    first, second = planner.plan(), planner.plan()
    assert planner.sampled(first.chunks[0], 9) == "stop"
    assert (planner.running, planner.pages_used) == (0, 0)
    third = planner.plan()
    assert [(chunk.slot, chunk.request.id) for chunk in third.chunks] == [(0, 1)]
    assert planner.sampled(second.chunks[0], 9) is IGNORED
    assert planner.sampled(third.chunks[0], 4) is None
    assert planner.plan().chunks[0].tokens == (4,)


def test_a_result_is_not_for_the_same_request_asked_again() -> None:
    again = request(0, 5)
    planner = planner_with(limits(ahead=1), again)
    old = planner.plan().chunks[0]
    assert planner.cancel(0)
    assert not planner.idle
    planner.arrive(again)
    new = planner.plan().chunks[0]
    assert (new.slot, new.request) == (old.slot, old.request)
    assert planner.sampled(old, 1) is IGNORED
    assert planner.sampled(new, 2) is None
    assert planner.plan().chunks[0].tokens == (2,)


def test_results_come_in_turn() -> None:
    planner = planner_with(limits(ahead=1), request(0, 5), request(1, 5))
    first, second = planner.plan().chunks
    with pytest.raises(AssertionError, match="out of turn"):
        planner.sampled(second, 1)
    stray = Chunk(slot=1, request=first.request, start=0, tokens=(1,), pages=(0,), samples=True)
    with pytest.raises(AssertionError, match="nothing is in flight"):
        planner_with(limits()).sampled(stray, 1)


def test_who_gave_back_waits_for_its_token_in_flight() -> None:
    planner = planner_with(limits(ahead=1, give_back_every=1), request(0, 5, max_tokens=2))
    first = planner.plan()
    assert planner.plan() == StepPlan(given_back=(0,))
    assert planner.plan() == StepPlan()
    assert (planner.running, planner.waiting, planner.pages_used) == (0, 1, 0)
    assert planner.sampled(first.chunks[0], 42) is None
    (chunk,) = planner.plan().chunks
    assert chunk.tokens == (0, 1, 2, 3, 4, 42)
    assert planner.sampled(chunk, 43) == "length"
    assert planner.given_back == 1


@pytest.mark.parametrize("cancelled", [False, True])
def test_who_gave_back_ends_with_its_token_in_flight(cancelled: bool) -> None:
    """0 takes the page of 1, whose last token is in flight."""
    planner = planner_with(limits(ahead=1, pages=2, n_ctx=128), request(0, 60), request(1, 30, max_tokens=5))
    plan = planner.plan()
    while not (following := planner.plan()).given_back:
        assert [planner.sampled(chunk, 1) for chunk in plan.chunks] == [None, None]
        plan = following
    assert rows(plan) == [(0, 63, 64), (1, 33, 34)]
    assert rows(following) == [(0, 64, 65)]
    assert (planner.running, planner.waiting) == (1, 1)
    if cancelled:
        assert planner.cancel(1)
    assert planner.sampled(plan.chunks[0], 1) is None
    assert planner.sampled(plan.chunks[1], 1) == (IGNORED if cancelled else "length")
    assert planner.waiting == 0
