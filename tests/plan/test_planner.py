"""The planner in single scenes; test_planner_machine.py has everything at once."""

from typing import Any

import pytest

from parkway.plan.limits import Knobs, Limits, Pace
from parkway.plan.planner import IGNORED, Planner
from parkway.plan.step import Chunk, StepPlan
from parkway.request import Request, SamplingParams


def limits(**changes: Any) -> Limits:
    return Limits(**({"slots": 3, "pages": 9, "n_ctx": 256, "batch_tokens": 100, "logit_rows": 10} | changes))


def request(number: int, tokens: int, **sampling: Any) -> Request:
    return Request(id=number, prompt=list(range(tokens)), sampling=SamplingParams(**sampling), seed=0)


def planner_with(limits: Limits, *requests: Request) -> Planner:
    planner = Planner(limits)
    for each in requests:
        planner.arrive(each)
    return planner


def step(planner: Planner, token_id: int = 1) -> tuple[StepPlan, list[str | None]]:
    plan = planner.plan(Pace())
    return plan, [planner.sampled(chunk, token_id if chunk.samples else None) for chunk in plan.chunks]


def rows(plan: StepPlan) -> list[tuple[int, int, int]]:
    return [(chunk.request.id, chunk.start, chunk.end) for chunk in plan.chunks]


def test_decoders_come_first_and_prompts_share_what_is_left() -> None:
    planner = planner_with(limits(), request(0, 30), request(1, 90), request(2, 50))
    assert rows(step(planner)[0]) == [(0, 0, 30), (1, 0, 70)]
    assert rows(step(planner)[0]) == [(0, 30, 31), (1, 70, 90), (2, 0, 50)]
    planner.arrive(request(3, 20))
    assert rows(step(planner)[0]) == [(0, 31, 32), (1, 90, 91), (2, 50, 51)]
    assert (planner.running, planner.waiting, planner.pages_used) == (3, 1, 4)


def test_chunk_tokens_caps_each_chat() -> None:
    planner = planner_with(limits(chunk_tokens=7), request(0, 8), request(1, 9))
    assert rows(step(planner)[0]) == [(0, 0, 7), (1, 0, 7)]
    assert rows(step(planner)[0]) == [(0, 7, 8), (1, 7, 9)]


def test_scored_prompt_waits_for_rows_with_logits() -> None:
    planner = planner_with(limits(logit_rows=4, slots=2), request(0, 6, prompt_logprobs=0), request(1, 3))
    plans = [step(planner)[0] for _ in range(2)]
    assert [chunk.scored_rows for chunk in plans[0].chunks] == [(0, 1, 2, 3), ()]
    assert rows(plans[0]) == [(0, 0, 4), (1, 0, 2)]
    assert [(chunk.scored_rows, chunk.samples) for chunk in plans[1].chunks] == [((0,), True), ((), True)]


def test_pool_that_is_full_ends_who_runs_if_nobody_may_be_parked() -> None:
    planner = planner_with(limits(pages=4, parks=False), request(0, 60), request(1, 60), request(2, 5, max_tokens=1))
    planner.cancel(2)
    while planner.pages_used < 4:
        step(planner)
    planner.arrive(request(3, 5, max_tokens=1))
    while not (failed := planner.take_failed()):
        step(planner)
    assert failed == [0, 1]
    assert (planner.running, planner.waiting, planner.pages_used, planner.parks) == (0, 1, 0, 0)
    assert planner.take_failed() == []
    assert step(planner)[1] == ["length"]


def test_prompt_without_an_answer_makes_room_like_others() -> None:
    """It is shorter than the leader, so it is parked, though nothing will follow its prompt."""
    planner = planner_with(limits(pages=6, n_ctx=384, chunk_tokens=1, prefix_cache=False), request(0, 127))
    for _ in range(120):
        step(planner)
    planner.arrive(request(1, 140, max_tokens=0))
    for _ in range(1000):
        if planner.idle:
            break
        step(planner)
    assert planner.idle


@pytest.mark.parametrize(("sampling", "reasons"), [({"max_tokens": 2}, [None, "length"]), ({}, [None, None, "length"])])
def test_length(sampling: dict[str, int], reasons: list[str | None]) -> None:
    planner = planner_with(limits(n_ctx=8), request(0, 5, **sampling))
    assert [step(planner)[1] for _ in reasons] == [[reason] for reason in reasons]
    assert planner.idle


def test_no_token_wanted_ends_with_the_prompt() -> None:
    planner = planner_with(limits(chunk_tokens=3), request(0, 5, max_tokens=0, prompt_logprobs=2))
    first, last = step(planner), step(planner)
    assert (first[1], last[1]) == ([None], ["length"])
    assert [chunk.scored_rows for plan in (first[0], last[0]) for chunk in plan.chunks] == [(0, 1, 2), (0,)]
    assert not any(chunk.samples for chunk in last[0].chunks)


def test_result_of_a_cancelled_chat_is_ignored() -> None:
    planner = planner_with(limits(slots=1), request(0, 5), request(1, 5))
    plan = planner.plan(Pace())
    assert planner.cancel(0)
    assert planner.sampled(plan.chunks[0], 1) is IGNORED
    assert not planner.cancel(0)
    assert planner.cancel(1)
    assert planner.idle
    assert planner.plan(Pace()) == StepPlan()


def test_next_plan_needs_the_results_of_the_last() -> None:
    planner = planner_with(limits(), request(0, 5))
    planner.plan(Pace())
    with pytest.raises(AssertionError, match="results of 1 steps are missing"):
        planner.plan(Pace())


def test_sampled_asserts_what_it_is_given() -> None:
    planner = planner_with(limits(), request(0, 5))
    chunk: Chunk = planner.plan(Pace()).chunks[0]
    with pytest.raises(AssertionError, match="a token is missing"):
        planner.sampled(chunk, None)


@pytest.mark.parametrize("tokens", [0, 256, 300])
def test_prompt_that_does_not_fit_was_the_engines_to_refuse(tokens: int) -> None:
    with pytest.raises(AssertionError, match="was not checked"):
        Planner(limits()).arrive(request(0, tokens))


@pytest.mark.parametrize(
    "changes",
    [
        {"slots": 0},
        {"n_ctx": 577},
        {"n_ctx": 1},
        {"batch_tokens": 2},
        {"logit_rows": 2},
        {"chunk_tokens": 0},
        {"knobs": Knobs(park_every=-1)},
        {"quantum": 0.0},
        {"ahead": -1},
    ],
)
def test_limits_that_can_not_work(changes: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        limits(**changes)
