"""The planner's prefix cache in single scenes; test_planner_machine.py has everything at once."""

import pytest

from parkway.plan.limits import Knobs, Pace
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


def test_siblings_wait_for_the_page_that_is_computed_and_then_share_it() -> None:
    planner = planner_with(limits(batch_tokens=200, pages=9, chunk_tokens=40, ahead=1), request(0, 70))
    first = planner.plan(Pace())
    planner.arrive(request(1, 70))
    planner.arrive(request(2, 70))
    second = planner.plan(Pace())
    assert rows(second) == [(0, 40, 70)], "nobody else computes the page that is being computed"
    planner.sampled(first.chunks[0], None)
    assert rows(planner.plan(Pace())) == [(0, 70, 71)]
    planner.sampled(second.chunks[0], 1)
    shared = planner.plan(Pace())
    assert rows(shared) == [(0, 71, 72), (1, 64, 70), (2, 64, 70)]
    assert len({chunk.pages[0] for chunk in shared.chunks}) == 1


def test_who_shares_nothing_does_not_wait() -> None:
    planner = planner_with(limits(batch_tokens=200, ahead=1), request(0, 70))
    planner.plan(Pace())
    planner.arrive(request(1, 70, cache_prompt=False))
    assert rows(planner.plan(Pace()))[-1] == (1, 0, 70)


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
    """0 holds 3 pages of 7 and will need another, 1 needs 4: 3 if it shares one."""
    for sampling, starts in (({"cache_prompt": False}, 0), ({}, 128)):
        planner = planner_with(limits(batch_tokens=400, pages=6), request(0, 190))
        step(planner)
        planner.arrive(request(1, 140, **sampling))
        ran = [chunk.start for chunk in step(planner)[0].chunks if chunk.request.id == 1]
        assert ran == ([starts] if starts else [])


def test_what_was_found_at_first_is_told_after_a_park_too() -> None:
    knobs = Knobs(park_every=1, forget=True)
    planner = planner_with(limits(batch_tokens=200, knobs=knobs, pages=5), request(0, 100, max_tokens=1))
    step(planner)
    assert start_of(planner, 1, 70).cached == 64
    (again,) = step(planner)[0].chunks
    assert (again.start, again.cached) == (0, 64)
