"""Who is to go: the choice alone, over chats and a pool made by hand."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from parkway.plan.limits import Knobs, Limits, Pace
from parkway.plan.pages import PagePool
from parkway.plan.slot import Slot, State
from parkway.plan.victims import in_turn, leader, line, victim
from parkway.request import Request, SamplingParams


def chats(pool: PagePool, *tokens: int) -> list[Slot]:
    """Chats of so many tokens, all computed."""
    slots = []
    for number, length in enumerate(tokens):
        request = Request(id=number, prompt=[number] * length, sampling=SamplingParams(), seed=0)
        slot = Slot.waiting(request, n_ctx=1024)
        pages = pool.take(-(-length // 64))
        assert pages is not None
        slot.pages, slot.computed = pages, length
        slots.append(slot)
    return slots


def chosen(running: Sequence[Slot], pool: PagePool, missing: int, exempt: Slot | None = None, **pace: float) -> int:
    slot = victim(
        running,
        pool,
        Pace(**{"now": 100.0} | pace),  # type: ignore[arg-type]
        Knobs(),
        exempt=exempt,
        missing=missing,
        tokens=0,
        misses=lambda slot: len(slot.pages),
    )
    return -1 if slot is None else slot.request.id


@pytest.mark.parametrize(("missing", "gone"), [(1, 2), (2, 1), (3, 3), (4, 3)])
def test_who_frees_enough_with_the_least_to_copy_or_else_the_most(missing: int, gone: int) -> None:
    pool = PagePool(20)
    assert chosen(chats(pool, 300, 100, 50, 180), pool, missing) == gone


def test_shared_pages_free_nothing() -> None:
    pool = PagePool(20)
    running = chats(pool, 300, 100, 180)
    pool.share(running[1].pages)
    assert chosen(running, pool, 1) == 2


def test_nobody_alone_and_the_leader_only_beside_an_exempt_one() -> None:
    pool = PagePool(20)
    running = chats(pool, 100, 300)
    assert chosen(running[1:], pool, 1) == -1
    assert chosen(running, pool, 1) == 0
    assert chosen(running, pool, 1, exempt=running[0]) == 1


def test_starved_and_fresh_chats_are_passed_over() -> None:
    pool = PagePool(20)
    running = chats(pool, 300, 50, 100, 180)
    running[1].parks = 3
    assert chosen(running, pool, 1) == 2
    running[2].entered = 99.0
    assert chosen(running, pool, 1, switch=1.0) == 3
    assert chosen(running, pool, 1, switch=0.25) == 2


def turn(running: Sequence[Slot], pool: PagePool, missing: int, tokens: int = 0) -> int:
    slot = in_turn(running, pool, Pace(now=100.0), 10.0, exempt=None, missing=missing, tokens=tokens)
    return -1 if slot is None else slot.request.id


def test_in_turn_goes_the_smallest_that_suffices_else_the_largest() -> None:
    pool = PagePool(20)
    running = chats(pool, 300, 50, 100)
    assert leader(running) is running[0]
    assert [turn(running, pool, missing) for missing in (1, 2, 3, 9)] == [1, 2, 0, 0]
    assert turn(running, pool, missing=2, tokens=64) == 1, "the page that it would take next counts as well"


def test_nobody_goes_in_turn_before_it_has_stayed_and_got_on() -> None:
    pool = PagePool(20)
    running = chats(pool, 50)
    running[0].entered = 91.0
    assert turn(running, pool, 1) == -1
    running[0].entered, running[0].entered_at = 90.0, 35
    assert turn(running, pool, 1) == -1
    running[0].entered_at = 34
    assert turn(running, pool, 1) == 0
    running[0].state = State.REPLAYING
    assert turn(running, pool, 1) == -1


def test_line_of_parked_and_new() -> None:
    waiting = chats(PagePool(20), 50, 50, 50, 50)
    for slot, when, parks in zip(waiting, (50.0, 20.0, 80.0, 30.0), (1, 2, 3, 0), strict=True):
        slot.since, slot.parks = when, parks
    sizes = {"slots": 3, "pages": 20, "n_ctx": 1024, "batch_tokens": 3, "logit_rows": 3}
    head, passing = Limits(**sizes), Limits(**sizes, resume="pass")  # type: ignore[arg-type]
    assert [slot.request.id for slot in line(waiting, head)] == [1, 3, 0, 2]
    assert [slot.request.id for slot in line(waiting, passing)] == [2, 1, 0, 3]


def test_where_priority_makes_two_equal_one_that_was_parked_is_first_then_who_waits_longer() -> None:
    waiting = chats(PagePool(20), 50, 50, 50)
    for slot, since, priority, parks in zip(waiting, (68.0, 38.0, 68.0), (0, 1, 0), (0, 0, 1), strict=True):
        slot.since, slot.parks, slot.request = since, parks, structs.replace(slot.request, priority=priority)
    limits = Limits(slots=3, pages=20, n_ctx=1024, batch_tokens=3, logit_rows=3)
    for order in (waiting, waiting[::-1]):
        assert [slot.since for slot in line(order, limits)] == [68.0, 38.0, 68.0]
        assert line(order, limits)[0].parks
