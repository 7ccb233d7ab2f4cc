"""The planner's prefix cache in single scenes; test_planner_machine.py has everything at once."""

import pytest

from parkway.plan.planner import Planner
from parkway.plan.step import Chunk

from .test_planner import limits, planner_with, request, rows, step


def start_of(planner: Planner, number: int, tokens: int, **sampling: object) -> Chunk:
    """The first chunk of a request behind what is there."""
    planner.arrive(request(number, tokens, **sampling))
    return next(chunk for chunk in step(planner)[0].chunks if chunk.request.id == number)


@pytest.mark.parametrize(("tokens", "cached"), [(64, 0), (65, 64), (128, 64), (129, 128), (190, 128)])
def test_found_after_the_chat_that_computed_it_has_ended(tokens: int, cached: int) -> None:
    planner = planner_with(limits(batch_tokens=200), request(0, 190, max_tokens=1))
    step(planner)
    assert planner.idle
    assert planner.pages_used == 0
    chunk = start_of(planner, 1, tokens)
    assert (chunk.start, chunk.cached) == (cached, cached)


def test_shared_with_the_chat_that_computed_it() -> None:
    planner = planner_with(limits(batch_tokens=200), request(0, 130))
    (first,) = step(planner)[0].chunks
    second = start_of(planner, 1, 130)
    assert second.start == 128
    assert second.pages[:2] == first.pages[:2]
    assert second.pages[2] != first.pages[2]
    assert planner.pages_used == 4


def test_the_answer_is_found_as_well() -> None:
    planner = planner_with(limits(batch_tokens=200), request(0, 63))
    for token_id in (63, 64):
        step(planner, token_id)
    assert start_of(planner, 1, 66).cached == 64


def test_not_found_before_its_step_has_landed() -> None:
    planner = planner_with(limits(batch_tokens=200, ahead=1), request(0, 70))
    planner.plan()
    planner.arrive(request(1, 70))
    assert rows(planner.plan())[-1] == (1, 0, 70)


@pytest.mark.parametrize("sampling", [{"cache_prompt": False}, {"prompt_logprobs": 0}])
def test_who_computes_all_itself(sampling: dict[str, int]) -> None:
    planner = planner_with(limits(batch_tokens=200, logit_rows=200), request(0, 100, max_tokens=1))
    step(planner)
    chunk = start_of(planner, 1, 100, **sampling)
    assert (chunk.start, chunk.cached) == (0, 0)


def test_switched_off() -> None:
    planner = planner_with(limits(batch_tokens=200, prefix_cache=False), request(0, 100, max_tokens=1))
    step(planner)
    assert start_of(planner, 1, 100).start == 0


def test_sharing_lets_in_who_would_not_fit_otherwise() -> None:
    planner = planner_with(limits(batch_tokens=400), request(0, 200))
    step(planner)
    planner.arrive(request(1, 100, cache_prompt=False))
    assert rows(step(planner)[0]) == [(0, 200, 201)]
    assert planner.cancel(1)
    assert planner.waiting == 0
    planner = planner_with(limits(batch_tokens=400, pages=5), request(0, 200))
    step(planner)
    assert start_of(planner, 2, 100).start == 64


def test_what_was_found_at_first_is_told_after_giving_back_too() -> None:
    planner = planner_with(limits(batch_tokens=200, give_back_every=1), request(0, 100, max_tokens=1))
    step(planner)
    assert start_of(planner, 1, 70).cached == 64
    (again,) = step(planner)[0].chunks
    assert (again.start, again.cached) == (0, 64)
