"""The page pool against a model of who holds what, what is named and which page is taken next."""

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
    free: list[int]
    cached: list[int]
    names: dict[int, bytes]

    @initialize(total=st.integers(1, 6))
    def begin(self, total: int) -> None:
        self.total = total
        self.pool = PagePool(total)
        self.references, self.pins = Counter(), Counter()
        self.free, self.cached, self.names = list(range(total)), [], {}

    @property
    def held(self) -> set[int]:
        return set(+self.references) | set(+self.pins)

    @rule(count=st.integers(0, 7))
    def take(self, count: int) -> None:
        pages = self.pool.take(count)
        if count > self.total - len(self.held):
            assert pages is None
            return
        assert pages == tuple([*self.free, *self.cached][:count])
        for page in pages:
            self.names.pop(page, None)
        self.cached = self.cached[max(0, count - len(self.free)) :]
        self.free = self.free[count:]
        self.references.update(pages)

    def let_go(self, page: int) -> None:
        if page not in self.held:
            (self.cached if page in self.names else self.free).append(page)

    @precondition(lambda self: +self.references)
    @rule(choice=st.data())
    def share_give_or_pin(self, choice: st.DataObject) -> None:
        page = choice.draw(st.sampled_from(sorted(+self.references)))
        change = choice.draw(st.sampled_from(["give", "pin", "share"]))
        if change == "give":
            self.pool.give([page])
            self.references[page] -= 1
            self.let_go(page)
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
        self.let_go(page)

    @precondition(lambda self: bool(set(+self.references) - set(self.names)))
    @rule(choice=st.data(), name=st.sampled_from([b"a", b"b", b"c", b"d"]))
    def seal(self, choice: st.DataObject, name: bytes) -> None:
        page = choice.draw(st.sampled_from(sorted(set(+self.references) - set(self.names))))
        self.pool.seal(page, name)
        if name not in self.names.values():
            self.names[page] = name

    @precondition(lambda self: self.names)
    @rule(choice=st.data())
    def share_what_is_found(self, choice: st.DataObject) -> None:
        page = self.pool.find(self.names[choice.draw(st.sampled_from(sorted(self.names)))])
        assert page is not None
        self.pool.share([page])
        self.references[page] += 1
        if page in self.cached:
            self.cached.remove(page)

    @rule(choice=st.data())
    def forget(self, choice: st.DataObject) -> None:
        page = choice.draw(st.integers(0, self.total - 1))
        self.pool.forget([page])
        if page in self.cached:
            self.cached.remove(page)
            self.free.append(page)
            del self.names[page]

    @invariant()
    def adds_up(self) -> None:
        if hasattr(self, "pool"):
            self.pool.check()
            assert self.pool.used == len(self.held)
            assert self.pool.free == self.total - len(self.held) == len(self.free) + len(self.cached)
            assert {name: self.pool.find(name) for name in (b"a", b"b", b"c", b"d")} == {
                name: next((page for page in self.names if self.names[page] == name), None)
                for name in (b"a", b"b", b"c", b"d")
            }


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


def sealed(pool: PagePool, count: int) -> tuple[int, ...]:
    pages = pool.take(count)
    assert pages is not None
    for page in pages:
        pool.seal(page, bytes([page]))
    return pages


def test_free_pages_are_taken_before_cached_ones() -> None:
    pool = PagePool(3)
    pool.give(sealed(pool, 2))
    assert (pool.free, pool.used) == (3, 0)
    assert pool.take(1) == (2,)
    assert pool.take(1) == (0,)
    assert (pool.find(b"\0"), pool.find(b"\1")) == (None, 1)


def test_cached_page_that_was_used_least_recently_is_taken_first() -> None:
    pool = PagePool(3)
    pool.give(sealed(pool, 3))
    pool.share([0])
    pool.give([0])
    assert pool.take(3) == (1, 2, 0)


def test_of_a_chats_pages_the_later_are_taken_before_the_earlier() -> None:
    """If it gives them back last page first, as the planner does."""
    pool = PagePool(4)
    pool.give(reversed(sealed(pool, 3)))
    assert pool.take(4) == (3, 2, 1, 0)


def test_named_page_of_two_is_free_when_both_have_given_it() -> None:
    pool = PagePool(1)
    (page,) = sealed(pool, 1)
    pool.share([page])
    pool.give([page])
    assert (pool.free, pool.used, pool.find(b"\0"), pool.take(1)) == (0, 1, 0, None)
    pool.give([page])
    assert (pool.free, pool.used, pool.find(b"\0")) == (1, 0, 0)
    pool.share([page])
    assert (pool.free, pool.used, pool.take(1)) == (0, 1, None)


def test_second_page_of_a_name_is_not_kept() -> None:
    pool = PagePool(2)
    sealed(pool, 1)
    (second,) = pool.take(1) or ()
    pool.seal(second, b"\0")
    assert pool.find(b"\0") == 0
    pool.give([1, 0])
    assert pool.take(1) == (1,)


def test_pages_that_one_holds_and_pages_that_anybody_holds() -> None:
    pool = PagePool(4)
    pages = sealed(pool, 3)
    pool.share([0])
    pool.pin([1])
    pool.give([1])
    pool.give([2])
    assert (pool.held_once(pages), pool.held(pages)) == (0, 2)
    pool.give([0])
    assert (pool.held_once(pages), pool.held(pages), pool.free) == (1, 2, 2)


def test_forgotten_page_is_free_and_a_held_one_is_not_forgotten() -> None:
    pool = PagePool(2)
    pages = sealed(pool, 2)
    pool.give([1])
    pool.forget(pages)
    assert (pool.find(b"\0"), pool.find(b"\1")) == (0, None)
    assert pool.take(1) == (1,)
    pool.check()


def test_nobody_seals_a_page_that_is_free() -> None:
    with pytest.raises(AssertionError, match="nobody references"):
        PagePool(1).seal(0, b"a")


@pytest.mark.parametrize("change", [PagePool.give, PagePool.unpin, PagePool.share, PagePool.pin])
def test_free_page_can_not_be_changed(change: object) -> None:
    assert callable(change)
    with pytest.raises(AssertionError):
        change(PagePool(1), [0])


def test_check_finds_wrong_names() -> None:
    named, nameless, held, twice = [PagePool(2) for _ in range(4)]
    named._index.add(0, b"a")
    nameless._cached[nameless._free.popleft()] = None
    held._cached[sealed(held, 1)[0]] = None
    twice.give(sealed(twice, 1))
    twice._free.append(0)
    for pool in (named, nameless, held, twice):
        with pytest.raises(AssertionError):
            pool.check()


def test_check_finds_a_lost_and_a_doubled_page() -> None:
    lost, doubled, both = PagePool(2), PagePool(2), PagePool(2)
    lost._free.popleft()
    doubled._free.append(0)
    both._references[1] = 1
    for pool in (lost, doubled, both):
        with pytest.raises(AssertionError):
            pool.check()
