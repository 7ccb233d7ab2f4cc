"""The pool's pages: who may take one and when it can be reused. Knows numbers only, not what a page holds."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping

from parkway.plan.prefix import PrefixIndex
from parkway.plan.step import PAGE_TOKENS


def pages_for(tokens: int) -> int:
    return (tokens + PAGE_TOKENS - 1) // PAGE_TOKENS


class PagePool:
    """`total` pages, counted from 0. A reference says that a chat needs the page, a pin that a copy reads or writes it.

    A page with neither is free. If it has a name (it is sealed) it is cached: it stays findable until it is taken, and
    is taken only when no other free page is left, the one that was used least recently first.
    """

    def __init__(self, total: int) -> None:
        self._references = [0] * total
        self._pins = [0] * total
        # The page that was given back first is reused first, so that what a page held survives as long as it can.
        self._free = deque(range(total))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._index = PrefixIndex()

    @property
    def free(self) -> int:
        """Pages that can be taken, the cached ones among them."""
        return len(self._free) + len(self._cached)

    @property
    def used(self) -> int:
        return len(self._references) - self.free

    def take(self, count: int) -> tuple[int, ...] | None:
        """Takes `count` pages with one reference each, or returns None and has changed nothing."""
        if count > self.free:
            return None
        pages = tuple([self._next() for _ in range(count)])
        for page in pages:
            self._references[page] = 1
        return pages

    def held_once(self, pages: Iterable[int]) -> int:
        """How many of these pages have one reference only."""
        return sum([self._references[page] == 1 for page in pages])

    def held(self, pages: Iterable[int]) -> int:
        """How many of these pages somebody holds, so that one reference more takes no free page."""
        return sum([bool(self._references[page] or self._pins[page]) for page in pages])

    def left_by(self, references: Mapping[int, int], pages: Iterable[int]) -> int:
        """How many of these pages nobody would hold but for a copy, were so many references of each dropped."""
        return sum([self._references[page] == references.get(page, 0) for page in pages])

    def find(self, name: bytes) -> int | None:
        """The page of that name, referenced or cached."""
        return self._index.find(name)

    def share(self, pages: Iterable[int]) -> None:
        """Adds a reference to pages that somebody references or that are cached."""
        for page in pages:
            self._cached.pop(page, None)
            assert self._references[page] or page in self._index, f"nobody references page {page}, and it has no name"
            self._references[page] += 1

    def followed(self, name: bytes) -> bool:
        """Whether a page that can be found follows the one of that name."""
        return self._index.followed(name)

    def seal(self, page: int, name: bytes, before: bytes = b"") -> None:
        """Names a referenced page, which will not be written again while it has the name. `before`: the name of the
        page before it, if there is one."""
        assert self._references[page], f"nobody references page {page}"
        self._index.add(page, name, before)

    def give(self, pages: Iterable[int]) -> None:
        """Drops one reference of each page; of those that become cached, the last counts as used most recently."""
        self._drop(pages, self._references)

    def forget(self, pages: Iterable[int]) -> None:
        """Pages that are cached are so no longer."""
        for page in pages:
            if page in self._cached:
                del self._cached[page]
                self._index.drop(page)
                self._free_again(page)

    def pin(self, pages: Iterable[int]) -> None:
        """Keeps referenced pages for a copy, whatever becomes of their references."""
        for page in pages:
            assert self._references[page], f"nobody references page {page}"
            self._pins[page] += 1

    def unpin(self, pages: Iterable[int]) -> None:
        """Drops one pin of each page."""
        self._drop(pages, self._pins)

    def check(self) -> None:
        """Asserts that free + cached + held is the whole pool; that no free page is held, and none is named."""
        held = {page for page, counts in enumerate(zip(self._references, self._pins, strict=True)) if any(counts)}
        free, cached = set(self._free), set(self._cached)
        assert len(free) == len(self._free), "a page is free twice"
        assert not (free | cached) & held, f"pages {sorted((free | cached) & held)} are free and held"
        assert not free & cached, f"pages {sorted(free & cached)} are free and cached"
        assert not any(page in self._index for page in free), "a page that nobody keeps has a name"
        assert all(page in self._index for page in cached), "a cached page has no name"
        assert len(free) + len(cached) + len(held) == len(self._references), "pages are neither free nor held"

    def _next(self) -> int:
        return self._free.popleft() if self._free else self._evicted()

    def _evicted(self) -> int:
        page, _ = self._cached.popitem(last=False)
        self._index.drop(page)
        return page

    def _drop(self, pages: Iterable[int], counts: list[int]) -> None:
        for page in pages:
            assert counts[page], f"page {page} is not held"
            counts[page] -= 1
            if self._references[page] or self._pins[page]:
                continue
            if page in self._index:
                self._cached[page] = None
            else:
                self._free_again(page)

    def _free_again(self, page: int) -> None:
        self._free.append(page)


class HostPages(PagePool):
    """Pages whose memory comes when they are first used: one that is free again is used before one that never was.
    Where memory was refused, one that never was is used last."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self._filled: set[int] = set()
        self._refused = False

    def fill(self, pages: Iterable[int]) -> None:
        """There is memory for these pages."""
        self._refused = self._refused and self._filled.issuperset(pages)
        self._filled.update(pages)

    def refuse(self) -> None:
        """There is none for pages that never had any."""
        self._refused = True

    def empty(self) -> None:
        """All memory is about to be given back."""
        self.forget(range(len(self._references)))
        self._filled.clear()
        self._refused = False

    def _next(self) -> int:
        dry = self._refused and self._cached and not (self._free and self._free[0] in self._filled)
        return self._evicted() if dry else super()._next()

    def _free_again(self, page: int) -> None:
        self._free.appendleft(page)
