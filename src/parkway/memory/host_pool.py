"""The host's pages, where parked chats wait: their memory comes in slabs, each when one of its pages is first needed.

For a GPU a slab is pinned if the system lets it be, so that the device copies without the processor. Knows neither the
planner, which hands the pages out, nor the library that allocates.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
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
    """Pages of `page_bytes`, counted from 0, as many as fit into `most_bytes` by slabs of one size and a smaller last.

    `allocate` makes a slab of so many bytes or raises MemoryError; `allocate_beside` does the same without haste, for
    what is made ahead while steps run. `size` says of how many bytes a slab is, given those of a page and the most that
    it may have; 0 where no page fits.
    """

    def __init__(
        self,
        most_bytes: int,
        page_bytes: int,
        allocate: Callable[[int], Slab],
        size: Callable[[int, int], int] = slab_size,
        allocate_beside: Callable[[int], Slab] | None = None,
    ) -> None:
        self.page_bytes = page_bytes
        self._slab_bytes = size(page_bytes, most_bytes)
        self._slab_pages = self._slab_bytes // page_bytes
        self._alike, rest_bytes = divmod(most_bytes, self._slab_bytes) if self._slab_bytes else (0, 0)
        self._last_bytes = size(page_bytes, rest_bytes)
        self.pages = self._alike * self._slab_pages + self._last_bytes // page_bytes
        self._allocate = allocate
        self._allocate_beside = allocate_beside or allocate
        self._slabs: dict[int, Slab] = {}
        self._used_slabs = 0
        self._lock = threading.Lock()
        self._reserving: threading.Thread | None = None

    @property
    def held_bytes(self) -> int:
        """What the slabs take of the machine's memory, used or idle."""
        return sum(slab.size_bytes for slab in list(self._slabs.values()))

    @property
    def pinned_bytes(self) -> int:
        return sum(slab.size_bytes for slab in list(self._slabs.values()) if slab.pinned)

    def prepare(self, numbers: Iterable[int]) -> None:
        """Sees to it that these pages have memory. Raises NoRoom; slabs that were made on the way stay, and count."""
        for slab in sorted({self._slab_of(number) for number in numbers}):
            self._used_slabs = max(self._used_slabs, slab + 1)
            try:
                self._make(slab, self._allocate)
            except MemoryError:
                raise NoRoom(
                    f"no memory for parked chats: {self._size_of(slab) / 2**20:,.0f} MiB can't be had, "
                    f"{self.held_bytes / 2**20:,.0f} MiB are held"
                ) from None

    def reserve(self, spare_bytes: int) -> None:
        """Begins, beside everything else, to make slabs of so many bytes beyond those that have been used.

        Pages are handed out in the order of their numbers, so these are what will be needed next.
        """
        if self._reserving and self._reserving.is_alive():
            return
        missing = self._missing(spare_bytes)
        if missing:
            ahead = (missing, self._allocate_beside)
            self._reserving = threading.Thread(target=self._make_ahead, args=ahead, name="host pages", daemon=True)
            self._reserving.start()

    def make_ready(self, spare_bytes: int) -> None:
        """Makes slabs of so many bytes before anything runs that could wait for them."""
        self._make_ahead(self._missing(spare_bytes), self._allocate)

    def has(self, numbers: Iterable[int]) -> bool:
        """Whether these pages have memory already."""
        return all(self._slab_of(number) in self._slabs for number in numbers)

    def release(self, spare_bytes: int) -> None:
        """Gives the memory of all pages back but for so many bytes."""
        if self._reserving:
            self._reserving.join()
        kept = -(-spare_bytes // self._slab_bytes) if self._slab_bytes else 0
        self._slabs = {number: slab for number, slab in self._slabs.items() if number < kept}
        self._used_slabs = 0

    def page(self, number: int) -> Any:
        """The memory of a page that has been prepared."""
        return self._slabs[self._slab_of(number)].page(number % self._slab_pages)

    @property
    def _most_slabs(self) -> int:
        return self._alike + bool(self._last_bytes)

    def _size_of(self, slab: int) -> int:
        return self._slab_bytes if slab < self._alike else self._last_bytes

    def _make(self, slab: int, allocate: Callable[[int], Slab]) -> None:
        """Raises MemoryError."""
        if slab not in self._slabs:
            with self._lock:  # whoever makes slabs ahead may be at this one
                if slab not in self._slabs:
                    self._slabs[slab] = allocate(self._size_of(slab))

    def _missing(self, spare_bytes: int) -> list[int]:
        """Slabs that are not there, of so many bytes beyond those that have been used."""
        if not self._slab_bytes:
            return []
        first, last = self._used_slabs, min(self._used_slabs + -(-spare_bytes // self._slab_bytes), self._most_slabs)
        return [slab for slab in range(first, last) if slab not in self._slabs]

    def _make_ahead(self, slabs: Iterable[int], allocate: Callable[[int], Slab]) -> None:
        with suppress(MemoryError):  # whoever needs it will say so
            for slab in slabs:
                self._make(slab, allocate)

    def _slab_of(self, number: int) -> int:
        assert 0 <= number < self.pages, f"there is no host page {number}"
        return number // self._slab_pages
