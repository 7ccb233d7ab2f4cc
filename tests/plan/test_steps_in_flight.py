"""The planner in single scenes with steps in flight; test_planner_machine.py has everything at once."""

import pytest

from parkway.plan.limits import Knobs, Pace
from parkway.plan.planner import IGNORED
from parkway.plan.step import PENDING, Chunk, StepPlan
from parkway.request import Request, SamplingParams

from .test_planner import limits, planner_with, request, rows


def test_a_chat_decodes_on_while_its_token_is_in_flight() -> None:
    planner = planner_with(limits(ahead=2), request(0, 5))
    plans = [planner.plan(Pace()) for _ in range(3)]
    assert [rows(plan) for plan in plans] == [[(0, 0, 5)], [(0, 5, 6)], [(0, 6, 7)]]
    assert [plan.chunks[0].tokens for plan in plans] == [(0, 1, 2, 3, 4), (PENDING,), (PENDING,)]
    assert all(plan.chunks[0].samples for plan in plans)
    assert planner.in_flight == 3
    with pytest.raises(AssertionError, match="results of 3 steps are missing"):
        planner.plan(Pace())


def test_a_token_that_has_landed_is_named() -> None:
    planner = planner_with(limits(ahead=1), request(0, 5))
    first = planner.plan(Pace())
    planner.sampled(first.chunks[0], 42)
    assert planner.plan(Pace()).chunks[0].tokens == (42,)


def test_a_chat_that_needs_its_history_waits_for_its_token_and_for_nothing_else() -> None:
    """Others go on. Its pages are its own, so that nobody else starts in them."""
    penalised = request(0, 5, presence_penalty=0.5)
    planner = planner_with(limits(ahead=2), penalised, request(1, 5))
    plans = [planner.plan(Pace()) for _ in range(3)]
    assert [[chunk.request.id for chunk in plan.chunks] for plan in plans] == [[0, 1], [1], [1]]
    assert planner.pages_used == 2
    planner.sampled(plans[0].chunks[0], 42)
    planner.sampled(plans[0].chunks[1], 43)
    assert [chunk.tokens for chunk in planner.plan(Pace()).chunks] == [(42,), (PENDING,)]
    assert [chunk.tokens for chunk in planner_with(limits(ahead=2), penalised).plan(Pace()).chunks] == [(0, 1, 2, 3, 4)]


def test_nobody_else_is_there() -> None:
    planner = planner_with(limits(ahead=1), request(0, 5, repeat_penalty=1.1))
    plan = planner.plan(Pace())
    assert planner.plan(Pace()) == StepPlan()
    assert not planner.idle
    assert planner.tokens(plan.chunks[0].slot) == [0, 1, 2, 3, 4]
    planner.sampled(plan.chunks[0], 42)
    assert planner.tokens(plan.chunks[0].slot) == [0, 1, 2, 3, 4, 42]
    assert planner.plan(Pace()).chunks[0].tokens == (42,)


def test_pieces_of_a_prompt_need_no_result() -> None:
    planner = planner_with(limits(ahead=1, chunk_tokens=3), request(0, 5))
    plans = [planner.plan(Pace()) for _ in range(2)]
    assert [plan.chunks[0].tokens for plan in plans] == [(0, 1, 2), (3, 4)]


def test_nothing_follows_the_last_token_that_a_chat_may_have() -> None:
    planner = planner_with(limits(ahead=1), request(0, 5, max_tokens=1))
    plan = planner.plan(Pace())
    assert planner.plan(Pace()) == StepPlan()
    assert not planner.idle
    assert planner.sampled(plan.chunks[0], 7) == "length"
    assert planner.idle


def test_a_stop_id_that_lands_late_frees_everything_at_once() -> None:
    ends = Request(id=0, prompt=[1] * 5, sampling=SamplingParams(), seed=0, stop_ids=frozenset({9}))
    planner = planner_with(limits(ahead=1, slots=1), ends, request(1, 5))
    first, second = planner.plan(Pace()), planner.plan(Pace())
    assert planner.sampled(first.chunks[0], 9) == "stop"
    assert (planner.running, planner.pages_used) == (0, 0)
    third = planner.plan(Pace())
    assert [(chunk.slot, chunk.request.id) for chunk in third.chunks] == [(0, 1)]
    assert planner.sampled(second.chunks[0], 9) is IGNORED
    assert planner.sampled(third.chunks[0], 4) is None
    assert planner.plan(Pace()).chunks[0].tokens == (4,)


def test_a_result_is_not_for_the_same_request_asked_again() -> None:
    again = request(0, 5)
    planner = planner_with(limits(ahead=1), again)
    old = planner.plan(Pace()).chunks[0]
    assert planner.cancel(0)
    assert not planner.idle
    planner.arrive(again)
    new = planner.plan(Pace()).chunks[0]
    assert (new.slot, new.request) == (old.slot, old.request)
    assert planner.sampled(old, 1) is IGNORED
    assert planner.sampled(new, 2) is None
    assert planner.plan(Pace()).chunks[0].tokens == (2,)


def test_results_come_in_turn() -> None:
    planner = planner_with(limits(ahead=1), request(0, 5), request(1, 5))
    first, second = planner.plan(Pace()).chunks
    with pytest.raises(AssertionError, match="out of turn"):
        planner.sampled(second, 1)
    stray = Chunk(slot=1, request=first.request, start=0, tokens=(1,), pages=(0,), samples=True)
    with pytest.raises(AssertionError, match="nothing is in flight"):
        planner_with(limits()).sampled(stray, 1)


def test_who_is_parked_waits_for_its_token_in_flight() -> None:
    knobs = Knobs(park_every=1, forget=True)
    planner = planner_with(limits(ahead=1, knobs=knobs), request(0, 5, max_tokens=2))
    first = planner.plan(Pace())
    assert planner.plan(Pace()) == StepPlan()
    assert (planner.running, planner.parked, planner.pages_used, planner.take_notices()) == (0, 1, 0, [])
    assert planner.plan(Pace()) == StepPlan()
    assert planner.sampled(first.chunks[0], 42) is None
    assert [notice.state for _, notice in planner.take_notices()] == ["preempted"]
    (chunk,) = planner.plan(Pace()).chunks
    assert chunk.tokens == (0, 1, 2, 3, 4, 42)
    assert [notice.state for _, notice in planner.take_notices()] == ["resumed", "recomputed"]
    assert planner.sampled(chunk, 43) == "length"
    assert (planner.parks, planner.resumes, planner.recomputes) == (1, 1, 1)


@pytest.mark.parametrize("host_pages", [0, 4])
@pytest.mark.parametrize("cancelled", [False, True])
def test_who_is_out_ends_with_its_token_in_flight(cancelled: bool, host_pages: int) -> None:
    """There is no third page for 1, which is parked with a token in flight that ends it."""
    ends = Request(id=1, prompt=[1] * 30, sampling=SamplingParams(), seed=0, stop_ids=frozenset({9}))
    planner = planner_with(
        limits(ahead=1, pages=6, n_ctx=384, host_pages=host_pages, batch_tokens=300, prefix_cache=False),
        request(0, 130),
        ends,
    )
    pace = Pace(look_ahead=0)
    plan, following = planner.plan(pace), planner.plan(pace)
    while not planner.parked:
        assert {planner.sampled(chunk, 1) for chunk in plan.chunks} == {None}
        plan, following = following, planner.plan(pace)
    assert [chunk.request.id for chunk in following.chunks] == [0]
    assert [copy.owner.value for copy in following.copies] == (["park"] if host_pages else [])
    if cancelled:
        assert planner.cancel(1)
    results = [planner.sampled(chunk, 9) for chunk in plan.chunks]
    assert results == [None, IGNORED if cancelled else "stop"]
    assert (planner.waiting, planner.take_notices()) == (0, [])
    for copy in following.copies:
        planner.landed(copy.id, 0.0)
    assert planner.pages_used == 4
