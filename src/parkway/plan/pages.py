"""The pool's pages: who may take one and when it can be reused. Knows numbers only, not what a page holds."""

from collections import deque
from collections.abc import Iterable

from parkway.plan.step import PAGE_TOKENS


def pages_for(tokens: int) -> int:
    return (tokens + PAGE_TOKENS - 1) // PAGE_TOKENS


class PagePool:
    """`total` pages, counted from 0. A reference says that a chat needs the page, a pin that a copy reads or writes it.

    A page is free when it has neither.
    """

    def __init__(self, total: int) -> None:
        self._references = [0] * total
        self._pins = [0] * total
        # The page that was given back first is reused first, so that what a page held survives as long as it can.
        self._free = deque(range(total))

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def used(self) -> int:
        return len(self._references) - len(self._free)

    def take(self, count: int) -> tuple[int, ...] | None:
        """Takes `count` pages with one reference each, or returns None and has changed nothing."""
        if count > len(self._free):
            return None
        pages = tuple(self._free.popleft() for _ in range(count))
        for page in pages:
            self._references[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Adds a reference to pages that somebody references."""
        self._hold(pages, self._references)

    def give(self, pages: Iterable[int]) -> None:
        """Drops one reference of each page."""
        self._drop(pages, self._references)

    def pin(self, pages: Iterable[int]) -> None:
        """Keeps referenced pages for a copy, whatever becomes of their references."""
        self._hold(pages, self._pins)

    def unpin(self, pages: Iterable[int]) -> None:
        """Drops one pin of each page."""
        self._drop(pages, self._pins)

    def check(self) -> None:
        """Asserts that free + held is the whole pool and that nobody holds a free page."""
        held = {page for page, counts in enumerate(zip(self._references, self._pins, strict=True)) if any(counts)}
        free = set(self._free)
        assert len(free) == len(self._free), "a page is free twice"
        assert not free & held, f"pages {sorted(free & held)} are free and held"
        assert len(free) + len(held) == len(self._references), "pages are neither free nor held"

    def _hold(self, pages: Iterable[int], counts: list[int]) -> None:
        for page in pages:
            assert self._references[page], f"nobody references page {page}"
            counts[page] += 1

    def _drop(self, pages: Iterable[int], counts: list[int]) -> None:
        for page in pages:
            assert counts[page], f"page {page} is not held"
            counts[page] -= 1
            if not self._references[page] and not self._pins[page]:
                self._free.append(page)
