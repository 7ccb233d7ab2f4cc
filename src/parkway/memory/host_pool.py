"""The host's pages, where parked chats wait: their memory comes in slabs, each when one of its pages is first needed.

A slab is pinned if the system lets it be, so that the device copies without the processor. Knows neither the planner,
which hands the pages out, nor the library that allocates.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from parkway.errors import NoRoom

SLAB_BYTES = 64 * 2**20
"""Of most slabs: pinning so much takes some 20 ms."""


class Slab(Protocol):
    """Memory of some neighbouring pages."""

    size_bytes: int

    @property
    def pinned(self) -> bool:
        """Whether the memory in hand really is."""

    def page(self, index: int) -> Any:
        """The memory of a page."""


def slab_size(page_bytes: int, most_bytes: int) -> int:
    """Bytes of a slab: a power of two, since allocators of pinned memory round up to one.

    An eighth of it is lost at most, unless `most_bytes` make it smaller; 0 where no page fits into those.
    """
    size_bytes = max(SLAB_BYTES, 1 << (page_bytes - 1).bit_length())
    while size_bytes % page_bytes > size_bytes // 8:
        size_bytes *= 2
    while size_bytes > most_bytes:
        size_bytes //= 2
    return size_bytes if size_bytes >= page_bytes else 0


class HostPool:
    """Pages of `page_bytes`, counted from 0, as many as fit into `most_bytes` by whole slabs.

    `allocate` makes a slab of so many bytes or raises MemoryError.
    """

    def __init__(self, most_bytes: int, page_bytes: int, allocate: Callable[[int], Slab]) -> None:
        self.page_bytes = page_bytes
        self._slab_bytes = slab_size(page_bytes, most_bytes)
        self._slab_pages = self._slab_bytes // page_bytes
        self.pages = self._slab_pages * (most_bytes // self._slab_bytes) if self._slab_bytes else 0
        self._allocate = allocate
        self._slabs: dict[int, Slab] = {}

    @property
    def held_bytes(self) -> int:
        """What the slabs take of the machine's memory, used or idle."""
        return sum(slab.size_bytes for slab in self._slabs.values())

    @property
    def pinned_bytes(self) -> int:
        return sum(slab.size_bytes for slab in self._slabs.values() if slab.pinned)

    def prepare(self, numbers: Iterable[int]) -> None:
        """Sees to it that these pages have memory. Raises NoRoom; slabs that were made on the way stay, and count."""
        for slab in sorted({self._slab_of(number) for number in numbers} - self._slabs.keys()):
            try:
                self._slabs[slab] = self._allocate(self._slab_bytes)
            except MemoryError:
                raise NoRoom(
                    f"no memory for parked chats: {self._slab_bytes / 2**20:,.0f} MiB can't be had, "
                    f"{self.held_bytes / 2**20:,.0f} MiB are held"
                ) from None

    def page(self, number: int) -> Any:
        """The memory of a page that has been prepared."""
        return self._slabs[self._slab_of(number)].page(number % self._slab_pages)

    def _slab_of(self, number: int) -> int:
        assert 0 <= number < self.pages, f"there is no host page {number}"
        return number // self._slab_pages
