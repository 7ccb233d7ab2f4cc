"""The machine of test_planner_machine.py finds each of these bugs of the prefix cache; see test_planted_bugs.py.

1 a page is named by its own tokens only; 2 it is named when its step is planned; 3 a hit covers the last token; 4 a
page that was cached can be taken although a chat shares it; 5 a page that is taken keeps its name; 6 pages that were
found count as free as well; 7 a chat computes what it found; 8 who owes log-probabilities shares; 9 who wants no cache
shares; 10 a page that was found is not held; 11 it is not given back with the others; 12 a chat finds nothing; 13 what
it finds is not told; 14 the last page, which is not full, is named.
"""

from collections.abc import Iterable, Sequence

import pytest

from parkway.plan import slot as slots
from parkway.plan.draft import Draft
from parkway.plan.pages import PagePool
from parkway.plan.planner import Planner
from parkway.plan.prefix import PrefixIndex, chain
from parkway.plan.sharing import Sharing
from parkway.plan.slot import Slot
from parkway.plan.step import PAGE_TOKENS

from .planted import Plant, machine_finds_it


def named_by_its_own_tokens(patch: pytest.MonkeyPatch) -> None:
    def chain_of_a_page(before: bytes, tokens: Sequence[int]) -> bytes:
        return chain(b"", tokens)

    patch.setattr(slots, "chain", chain_of_a_page)


def named_when_planned(patch: pytest.MonkeyPatch) -> None:
    has_pages = Planner._has_pages

    def has_pages_sealed(self: Planner, slot: Slot, end: int, step: Draft) -> bool:
        has = has_pages(self, slot, end, step)
        if has:
            self._seal(slot, min(end, len(slot.tokens)) // PAGE_TOKENS)
        return has

    patch.setattr(Planner, "_has_pages", has_pages_sealed)


def hit_covers_the_last_token(patch: pytest.MonkeyPatch) -> None:
    shared = Sharing.found

    def shared_with_the_last(self: Sharing, slot: Slot) -> list[int]:
        slot.length += 1
        pages = shared(self, slot)
        slot.length -= 1
        return pages

    patch.setattr(Sharing, "found", shared_with_the_last)


def shared_page_stays_cached(patch: pytest.MonkeyPatch) -> None:
    def share(self: PagePool, pages: Iterable[int]) -> None:
        for page in pages:
            self._references[page] += 1

    patch.setattr(PagePool, "share", share)


def taken_page_keeps_its_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PagePool, "_evicted", lambda self: self._cached.popitem(last=False)[0])


def found_pages_count_as_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PagePool, "held", lambda self, pages: len(list(pages)))


def enters_with(patch: pytest.MonkeyPatch, name: str) -> None:
    """A chat comes into the pool and keeps that attribute as it was."""
    enter = Slot.enter

    def enter_as_it_was(self: Slot, pages: tuple[int, ...], now: float) -> None:
        before = getattr(self, name)
        enter(self, pages, now)
        setattr(self, name, before)

    patch.setattr(Slot, "enter", enter_as_it_was)


def computes_what_it_found(patch: pytest.MonkeyPatch) -> None:
    enters_with(patch, "computed")


def hit_not_told(patch: pytest.MonkeyPatch) -> None:
    enters_with(patch, "cached")


def log_probabilities_not_computed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "may_share", property(lambda self: self.request.sampling.cache_prompt))


def shares_against_its_wish(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "may_share", property(lambda self: self.scored >= len(self.request.prompt) - 1))


def found_page_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PagePool, "share", lambda self, pages: None)


def found_page_not_given_back(patch: pytest.MonkeyPatch) -> None:
    give = PagePool.give
    patch.setattr(PagePool, "give", lambda self, pages: give(self, [page for page in pages if page not in self._index]))


def finds_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PrefixIndex, "find", lambda self, name: None)


def names_a_page_that_is_not_full(patch: pytest.MonkeyPatch) -> None:
    seal = Planner._seal

    def seal_one_more(self: Planner, slot: Slot, pages: int) -> None:
        seal(self, slot, min(pages + 1, len(slot.pages)))

    patch.setattr(Planner, "_seal", seal_one_more)


PLANTS: list[Plant] = [
    named_by_its_own_tokens,
    named_when_planned,
    hit_covers_the_last_token,
    shared_page_stays_cached,
    taken_page_keeps_its_name,
    found_pages_count_as_free,
    computes_what_it_found,
    log_probabilities_not_computed,
    shares_against_its_wish,
    found_page_not_held,
    found_page_not_given_back,
    finds_nothing,
    hit_not_told,
    names_a_page_that_is_not_full,
]


@pytest.mark.parametrize("plant", PLANTS)
def test_the_machine_finds_it(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    machine_finds_it()
