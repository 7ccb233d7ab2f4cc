"""Chats with a grammar: none gets a token before it is released, and nobody waits for it."""

from typing import Any

import pytest

from parkway.plan.limits import Knobs, Pace
from parkway.plan.planner import Planner
from tests.plan.scene import limits, request

GRAMMAR = "any"


def rows(planner: Planner) -> list[tuple[int, int, int, bool]]:
    """Of the next step, which lands at once: whose, from where to where, and whether it samples."""
    plan = planner.plan(Pace())
    for chunk in plan.chunks:
        planner.sampled(chunk, 7 if chunk.samples else None)
    for copy in plan.copies:
        planner.landed(copy.id, 0.0)
    return [(chunk.request.id, chunk.start, chunk.end, chunk.samples) for chunk in plan.chunks]


def test_a_prompt_is_computed_meanwhile_but_for_its_last_token() -> None:
    planner = Planner(limits())
    planner.arrive(request(0, 30, grammar=GRAMMAR))
    planner.arrive(request(1, 20))
    assert rows(planner) == [(0, 0, 29, False), (1, 0, 20, True)]
    assert rows(planner) == [(1, 20, 21, True)]
    planner.release(0)
    assert rows(planner) == [(1, 21, 22, True), (0, 29, 30, True)]
    assert rows(planner) == [(1, 22, 23, True)]
    planner.release(0)
    assert rows(planner) == [(0, 30, 31, True), (1, 23, 24, True)]


def test_each_release_is_good_for_one_token() -> None:
    planner = Planner(limits())
    planner.arrive(request(0, 5, grammar=GRAMMAR, max_tokens=3))
    planner.release(0)  # it has no slot yet
    assert rows(planner) == [(0, 0, 5, True)]
    for end in (6, 7):
        assert rows(planner) == []
        assert not planner.idle
        planner.release(0)
        assert rows(planner) == [(0, end - 1, end, True)]
    assert planner.idle
    planner.release(0)


def test_a_request_that_waits_for_a_slot_or_room_is_released_too() -> None:
    planner = Planner(limits(slots=1, pages=4))
    planner.arrive(request(0, 200, max_tokens=1))
    planner.arrive(request(1, 200, grammar=GRAMMAR))
    planner.release(1)
    assert rows(planner) == [(0, 0, 200, True)]
    assert rows(planner) == [(1, 0, 200, True)]


def test_what_is_asked_for_without_an_answer_is_computed_whole() -> None:
    planner = Planner(limits())
    planner.arrive(request(0, 30, grammar=GRAMMAR, max_tokens=0))
    assert rows(planner) == [(0, 0, 30, False)]
    assert planner.idle


@pytest.mark.parametrize("host_pages", [20, 0], ids=["copied", "computed again"])
def test_a_chat_that_was_parked_while_it_was_held_comes_back_held(host_pages: int) -> None:
    planner = Planner(limits(host_pages=host_pages, knobs=Knobs(park_every=3, forget=True)))
    planner.arrive(request(0, 70, grammar=GRAMMAR))
    planner.arrive(request(1, 5))
    tokens, sampled = 0, []
    for at in range(60):
        if at % 5 == 4:
            planner.release(0)
            tokens += 1
        sampled += [row for row in rows(planner) if row[0] == 0 and row[3]]
    assert planner.parks > 1
    assert 2 < len(sampled) <= tokens
    assert [end for _, _, end, _ in sampled] == [*range(70, 70 + len(sampled))]


def test_a_cancelled_chat_is_not_released() -> None:
    planner = Planner(limits())
    planner.arrive(request(0, 30, grammar=GRAMMAR))
    rows(planner)
    assert planner.cancel(0)
    planner.release(0)
    assert planner.idle


def test_no_chat_without_a_grammar_is_held() -> None:
    hows: list[dict[str, Any]] = [{}, {"repeat_penalty": 1.5}]
    for how in hows:
        planner = Planner(limits())
        planner.arrive(request(0, 5, **how))
        assert [rows(planner) for _ in range(2)] == [[(0, 0, 5, True)], [(0, 5, 6, True)]]
