"""The planner in single scenes; test_planner_machine.py has everything at once."""

from typing import Any

import pytest

from parkway.plan.planner import IGNORED, Limits, Planner
from parkway.plan.step import Chunk, StepPlan
from parkway.request import Request, SamplingParams


def limits(**changes: Any) -> Limits:
    return Limits(**({"slots": 3, "pages": 4, "n_ctx": 256, "batch_tokens": 100, "logit_rows": 10} | changes))


def request(number: int, tokens: int, **sampling: Any) -> Request:
    return Request(id=number, prompt=list(range(tokens)), sampling=SamplingParams(**sampling), seed=0)


def planner_with(limits: Limits, *requests: Request) -> Planner:
    planner = Planner(limits)
    for each in requests:
        planner.arrive(each)
    return planner


def step(planner: Planner, token_id: int = 1) -> tuple[StepPlan, list[str | None]]:
    plan = planner.plan()
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


def test_youngest_gives_back_and_is_computed_again_without_sampling_twice() -> None:
    planner = planner_with(limits(pages=3, n_ctx=150, slots=2), request(0, 60), request(1, 60))
    answers: dict[int, list[int]] = {0: [], 1: []}
    given_back: list[int] = []
    while not planner.idle:
        plan = planner.plan()
        given_back += plan.given_back
        for chunk in plan.chunks:
            token_id = 1000 * chunk.request.id + chunk.end if chunk.samples else None
            answers[chunk.request.id] += [token_id] if token_id is not None else []
            planner.sampled(chunk, token_id)
    assert given_back[0] == 1
    assert planner.given_back == len(given_back)
    assert answers == {number: [1000 * number + end for end in range(60, 150)] for number in (0, 1)}
    assert planner.pages_used == 0


def test_victim_that_was_planned_already_leaves_the_step() -> None:
    """0 decodes into the page that was promised to 1's prompt, so 1 takes the page of 2, which decodes."""
    planner = planner_with(limits(batch_tokens=3), request(0, 20), request(1, 100), request(2, 1))
    while not (plan := step(planner)[0]).given_back:
        assert planner.running == 3
    assert plan.given_back == (2,)
    assert [number for number, _, _ in rows(plan)] == [0, 1]


def test_victim_does_not_prefill_in_the_step_that_took_its_pages() -> None:
    planner = planner_with(limits(chunk_tokens=1), request(0, 20), request(1, 100))
    for _ in range(30):
        step(planner)
    planner.arrive(request(2, 60))
    while not (plan := step(planner)[0]).given_back:
        assert planner.running == 3
    assert plan.given_back == (2,)
    assert rows(plan) == [(0, 64, 65), (1, 64, 65)]


def test_chat_is_cancelled_while_it_waits_to_be_computed_again() -> None:
    planner = planner_with(limits(pages=3, n_ctx=150, slots=2), request(0, 60), request(1, 60))
    while not step(planner)[0].given_back:
        assert planner.running == 2
    assert (planner.running, planner.waiting) == (1, 1)
    assert planner.cancel(1)
    assert planner.waiting == 0
    planner.arrive(request(2, 20))
    assert step(planner)[0].chunks[-1].slot == 1


def test_give_back_every_token() -> None:
    planner = planner_with(limits(give_back_every=1), request(0, 5, max_tokens=3))
    plans = [step(planner)[0] for _ in range(3)]
    assert [rows(plan) for plan in plans] == [[(0, 0, 5)], [(0, 0, 6)], [(0, 0, 7)]]
    assert [plan.given_back for plan in plans] == [(), (0,), (0,)]
    assert all(chunk.samples for plan in plans for chunk in plan.chunks)
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
    plan = planner.plan()
    assert planner.cancel(0)
    assert planner.sampled(plan.chunks[0], 1) is IGNORED
    assert not planner.cancel(0)
    assert planner.cancel(1)
    assert planner.idle
    assert planner.plan() == StepPlan()


def test_next_plan_needs_the_results_of_the_last() -> None:
    planner = planner_with(limits(), request(0, 5))
    planner.plan()
    with pytest.raises(AssertionError, match="results of 1 steps are missing"):
        planner.plan()


def test_sampled_asserts_what_it_is_given() -> None:
    planner = planner_with(limits(), request(0, 5))
    chunk: Chunk = planner.plan().chunks[0]
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
        {"n_ctx": 257},
        {"n_ctx": 1},
        {"batch_tokens": 2},
        {"logit_rows": 2},
        {"chunk_tokens": 0},
        {"give_back_every": -1},
        {"ahead": -1},
    ],
)
def test_limits_that_can_not_work(changes: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        limits(**changes)
