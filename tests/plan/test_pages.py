"""The page pool against a model of who holds what."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from parkway.plan.pages import PagePool, pages_for
from parkway.plan.step import PAGE_TOKENS


class PoolMachine(RuleBasedStateMachine):
    references: Counter[int]
    pins: Counter[int]

    @initialize(total=st.integers(1, 6))
    def begin(self, total: int) -> None:
        self.total = total
        self.pool = PagePool(total)
        self.references, self.pins = Counter(), Counter()

    @property
    def held(self) -> set[int]:
        return set(+self.references) | set(+self.pins)

    @rule(count=st.integers(0, 7))
    def take(self, count: int) -> None:
        pages = self.pool.take(count)
        if count > self.total - len(self.held):
            assert pages is None
            return
        assert pages is not None
        assert len(set(pages)) == count
        assert not self.held & set(pages), "a page was taken that somebody holds"
        self.references.update(pages)

    @precondition(lambda self: +self.references)
    @rule(choice=st.data())
    def share_give_or_pin(self, choice: st.DataObject) -> None:
        page = choice.draw(st.sampled_from(sorted(+self.references)))
        change = choice.draw(st.sampled_from(["give", "pin", "share"]))
        if change == "give":
            self.pool.give([page])
            self.references[page] -= 1
        elif change == "share":
            self.pool.share([page])
            self.references[page] += 1
        else:
            self.pool.pin([page])
            self.pins[page] += 1

    @precondition(lambda self: +self.pins)
    @rule(choice=st.data())
    def unpin(self, choice: st.DataObject) -> None:
        page = choice.draw(st.sampled_from(sorted(+self.pins)))
        self.pool.unpin([page])
        self.pins[page] -= 1

    @invariant()
    def adds_up(self) -> None:
        if hasattr(self, "pool"):
            self.pool.check()
            assert self.pool.used == len(self.held)
            assert self.pool.free == self.total - len(self.held)


PoolMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestPool = PoolMachine.TestCase


def test_pages_for() -> None:
    assert [pages_for(tokens) for tokens in (0, 1, PAGE_TOKENS, PAGE_TOKENS + 1)] == [0, 1, 1, 2]


def test_pinned_page_comes_back_with_its_pin() -> None:
    pool = PagePool(1)
    pages = pool.take(1)
    assert pages is not None
    pool.pin(pages)
    pool.give(pages)
    assert pool.take(1) is None
    pool.unpin(pages)
    assert pool.take(1) == pages


def test_oldest_free_page_is_reused_first() -> None:
    pool = PagePool(3)
    first = pool.take(2)
    assert first == (0, 1)
    pool.give(first)
    assert pool.take(3) == (2, 0, 1)


@pytest.mark.parametrize("change", [PagePool.give, PagePool.unpin, PagePool.share, PagePool.pin])
def test_free_page_can_not_be_changed(change: object) -> None:
    assert callable(change)
    with pytest.raises(AssertionError):
        change(PagePool(1), [0])


def test_check_finds_a_lost_and_a_doubled_page() -> None:
    lost, doubled, both = PagePool(2), PagePool(2), PagePool(2)
    lost._free.popleft()
    doubled._free.append(0)
    both._references[1] = 1
    for pool in (lost, doubled, both):
        with pytest.raises(AssertionError):
            pool.check()
