"""The machine of test_planner_machine.py finds each of these bugs of the prefix cache; see test_planted_bugs.py.

1 a page is named by its own tokens only; 2 it is named when its step is planned; 3 a hit covers the last token; 4 a
page that was cached can be taken although a chat shares it; 5 a page that is taken keeps its name; 6 a step of a chat's
earlier stay names the pages of its new one; 7 pages that were found count as free as well; 8 a chat that comes back
takes its pages for named as they were; 9 or computes what it found; 10 who owes log-probabilities shares; 11 who wants
no cache shares; 12 who gives back on purpose finds its pages again; 13 a page that was found is not held; 14 it is not
given back when the rest does not fit; 15 a chat finds nothing; 16 what it finds is not told; 17 the last page,
which is not full, is named.
"""

from collections.abc import Iterable, Sequence

import pytest

from parkway.plan import slot as slots
from parkway.plan.pages import PagePool, pages_for
from parkway.plan.planner import Planner, _Draft
from parkway.plan.prefix import PrefixIndex, chain
from parkway.plan.slot import Slot
from parkway.plan.step import PAGE_TOKENS, Chunk

from .planted import Plant, machine_finds_it


def named_by_its_own_tokens(patch: pytest.MonkeyPatch) -> None:
    def chain_of_a_page(before: bytes, tokens: Sequence[int]) -> bytes:
        return chain(b"", tokens)

    patch.setattr(slots, "chain", chain_of_a_page)


def named_when_planned(patch: pytest.MonkeyPatch) -> None:
    add = Planner._add

    def add_and_seal(self: Planner, slot: Slot, end: int, step: _Draft) -> None:
        add(self, slot, end, step)
        if step.ends.get(slot) == end:
            self._seal(slot, min(end, len(slot.tokens)) // PAGE_TOKENS)

    patch.setattr(Planner, "_add", add_and_seal)


def hit_covers_the_last_token(patch: pytest.MonkeyPatch) -> None:
    found = Planner._found

    def found_with_the_last(self: Planner, slot: Slot) -> tuple[int, ...]:
        slot.length += 1
        pages = found(self, slot)
        slot.length -= 1
        return pages

    patch.setattr(Planner, "_found", found_with_the_last)


def shared_page_stays_cached(patch: pytest.MonkeyPatch) -> None:
    def share(self: PagePool, pages: Iterable[int]) -> None:
        for page in pages:
            self._references[page] += 1

    patch.setattr(PagePool, "share", share)


def taken_page_keeps_its_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PagePool, "_evicted", lambda self: self._cached.popitem(last=False)[0])


def earlier_stay_names_pages(patch: pytest.MonkeyPatch) -> None:
    landed = Planner._landed

    def landed_in_this_stay(self: Planner, chunk: Chunk) -> tuple[Slot, int]:
        slot, _ = landed(self, chunk)
        return slot, slot.stay

    patch.setattr(Planner, "_landed", landed_in_this_stay)


def found_pages_count_as_free(patch: pytest.MonkeyPatch) -> None:
    def enter(self: Planner, slot: Slot) -> bool:
        found = self._found(slot)
        needs = sum(pages_for(other.length + 1) - len(other.pages) for other in self._running)
        if pages_for(slot.length + 1) - len(found) + needs > self._pool.free:
            return False
        self._pool.share(found)
        slot.enter(found)
        self._running.append(slot)
        return True

    patch.setattr(Planner, "_enter", enter)


def enters_with(patch: pytest.MonkeyPatch, name: str) -> None:
    """A chat comes into the pool and keeps that attribute as it was."""
    enter = Slot.enter

    def enter_as_it_was(self: Slot, pages: tuple[int, ...]) -> None:
        before = getattr(self, name)
        enter(self, pages)
        setattr(self, name, before)

    patch.setattr(Slot, "enter", enter_as_it_was)


def named_pages_not_counted_again(patch: pytest.MonkeyPatch) -> None:
    enters_with(patch, "sealed")


def computes_what_it_found(patch: pytest.MonkeyPatch) -> None:
    enters_with(patch, "computed")


def hit_not_told(patch: pytest.MonkeyPatch) -> None:
    enters_with(patch, "cached")


def log_probabilities_not_computed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "may_share", property(lambda self: self.request.sampling.cache_prompt))


def shares_against_its_wish(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "may_share", property(lambda self: self.scored >= len(self.request.prompt) - 1))


def finds_what_it_gave_back_on_purpose(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PagePool, "forget", lambda self, pages: None)


def found_page_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PagePool, "share", lambda self, pages: None)


def found_page_lost_while_waiting(patch: pytest.MonkeyPatch) -> None:
    enter, give = Planner._enter, PagePool.give

    def enter_without_giving(self: Planner, slot: Slot) -> bool:
        patch.setattr(PagePool, "give", lambda self, pages: None)
        entered = enter(self, slot)
        patch.setattr(PagePool, "give", give)
        return entered

    patch.setattr(Planner, "_enter", enter_without_giving)


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
    earlier_stay_names_pages,
    found_pages_count_as_free,
    named_pages_not_counted_again,
    computes_what_it_found,
    log_probabilities_not_computed,
    shares_against_its_wish,
    finds_what_it_gave_back_on_purpose,
    found_page_not_held,
    found_page_lost_while_waiting,
    finds_nothing,
    hit_not_told,
    names_a_page_that_is_not_full,
]


@pytest.mark.parametrize("plant", PLANTS)
def test_the_machine_finds_it(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    machine_finds_it()
