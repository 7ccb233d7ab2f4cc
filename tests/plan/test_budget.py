"""The arithmetic of pages in worked examples: 64 tokens a page."""

import pytest

from parkway.plan.budget import demand, gain, reach
from parkway.plan.pages import PagePool
from parkway.plan.slot import Slot
from parkway.request import Request, SamplingParams


def chat(tokens: int, pages: tuple[int, ...] = (), most: int | None = None, n_ctx: int = 1024) -> Slot:
    """A chat of so many tokens, its whole prompt, that may get `most` more."""
    slot = Slot.waiting(Request(id=0, prompt=[1] * tokens, sampling=SamplingParams(max_tokens=most), seed=0), n_ctx)
    slot.pages = pages
    return slot


@pytest.mark.parametrize(
    ("tokens", "more", "pages"),
    [(1, 0, 1), (64, 0, 1), (64, 1, 2), (65, 0, 2), (127, 1, 2), (128, 1, 3), (100, 512, 10)],
)
def test_reach_is_in_whole_pages(tokens: int, more: int, pages: int) -> None:
    assert reach(chat(tokens), more) == pages


@pytest.mark.parametrize(("tokens", "most", "pages"), [(60, 4, 1), (60, 5, 1), (60, 6, 2), (64, 1, 1), (64, 0, 1)])
def test_last_token_takes_no_room(tokens: int, most: int, pages: int) -> None:
    assert reach(chat(tokens, most=most), 512) == pages


def test_context_ends_what_a_chat_can_need() -> None:
    assert reach(chat(100, n_ctx=129), 512) == 2
    assert reach(chat(100, n_ctx=130), 512) == 3


def test_demand_is_what_each_still_misses() -> None:
    chats = [chat(64, (0,)), chat(65, (1,)), chat(200, (2, 3, 4, 5))]
    assert demand(chats, 0) == 0 + 1 + 0
    assert demand(chats, 1) == 1 + 1 + 0
    assert demand(chats, 64) == 1 + 2 + 1
    assert demand([], 64) == 0


def test_gain_counts_what_one_alone_holds_and_what_it_would_take() -> None:
    pool = PagePool(4)
    assert pool.take(3) == (0, 1, 2)
    pool.seal(0, b"a")
    pool.share([0])
    slot = chat(190, (0, 1, 2))
    assert gain(slot, pool, 0) == 2
    assert gain(slot, pool, 3) == 3
    pool.give([0])
    assert gain(slot, pool, 3) == 4
