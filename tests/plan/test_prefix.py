"""Names of pages, and the index of who has one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parkway.plan.prefix import KEY_BYTES, PrefixIndex, chain
from parkway.plan.slot import Slot
from parkway.plan.step import PAGE_TOKENS
from parkway.request import Request, SamplingParams


def names(prompt: list[int]) -> list[bytes]:
    slot = Slot.waiting(Request(id=0, prompt=prompt, sampling=SamplingParams(), seed=0), n_ctx=1000)
    return [slot.name(page) for page in range(len(prompt) // PAGE_TOKENS)]


def test_same_tokens_behind_the_same_beginning_have_the_same_name() -> None:
    prompt = list(range(3 * PAGE_TOKENS))
    assert names(prompt) == names([*prompt, 7])
    assert names(prompt)[:2] == names(prompt[:-1])
    assert all(len(name) == KEY_BYTES for name in names(prompt))


def test_same_tokens_behind_another_beginning_have_another_name() -> None:
    assert len(set(names([5] * 4 * PAGE_TOKENS))) == 4


@given(position=st.integers(0, 3 * PAGE_TOKENS - 1), token_id=st.integers(300, 2**31 - 1))
def test_a_difference_gives_its_page_and_all_behind_it_another_name(position: int, token_id: int) -> None:
    prompt = list(range(3 * PAGE_TOKENS))
    other = [*prompt[:position], token_id, *prompt[position + 1 :]]
    differs = [one != another for one, another in zip(names(prompt), names(other), strict=True)]
    assert differs == [page >= position // PAGE_TOKENS for page in range(3)]


def test_name_does_not_depend_on_which_page_is_asked_first() -> None:
    slot = Slot.waiting(Request(id=0, prompt=[5] * 200, sampling=SamplingParams(), seed=0), n_ctx=1000)
    assert [slot.name(page) for page in (2, 0, 1)] == [names([5] * 200)[page] for page in (2, 0, 1)]


def test_tokens_are_hashed_as_numbers() -> None:
    assert chain(b"", [1, 2]) != chain(b"", [2, 1])
    assert chain(b"", [258]) != chain(b"", [2, 1])


def test_index_finds_the_first_page_of_a_name_until_it_is_dropped() -> None:
    index = PrefixIndex()
    index.add(3, b"a")
    index.add(4, b"a")
    assert (index.find(b"a"), 3 in index, 4 in index) == (3, True, False)
    index.drop(3)
    assert (index.find(b"a"), 3 in index) == (None, False)
    index.add(4, b"a")
    assert index.find(b"a") == 4


def test_index_knows_which_names_are_followed() -> None:
    index = PrefixIndex()
    for page, name, before in (3, b"a", b""), (4, b"ab", b"a"), (5, b"ac", b"a"), (6, b"ab", b"a"):
        index.add(page, name, before)
    index.drop(3)
    assert (index.followed(b"a"), index.followed(b"ab")) == (True, False)
    index.drop(4)
    assert index.followed(b"a")
    index.drop(5)
    assert not index.followed(b"a"), "page 6 was never found"
    index.add(6, b"ab", b"a")
    assert index.followed(b"a")


def test_a_page_has_one_name() -> None:
    index = PrefixIndex()
    index.add(3, b"a")
    with pytest.raises(AssertionError, match="has a name already"):
        index.add(3, b"b")
