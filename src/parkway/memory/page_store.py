"""The pool's pages on the CPU: one run of memory, page after page, given by the system when first touched."""

from typing import NamedTuple

import psutil

from parkway.backends.cpu.library import Memory
from parkway.errors import NoRoom
from parkway.plan.step import PAGE_TOKENS


class Page(NamedTuple):
    """Where a page lies, and the memory that it is part of, which lives as long as the page is known."""

    memory: Memory
    address: int
    size_bytes: int


class PageStore:
    """`pages` pages of `page_bytes` each. Raises NoRoom where the machine can't hold them."""

    def __init__(self, tokens: int, page_bytes: int) -> None:
        self.pages = -(-tokens // PAGE_TOKENS)
        self.page_bytes = page_bytes
        self.bytes = self.pages * page_bytes
        available = psutil.virtual_memory().available
        if self.bytes > available:
            raise NoRoom(
                f"--ctx-size {tokens}: the KV pool needs {self.bytes / 2**20:,.0f} MiB, "
                f"{available / 2**20:,.0f} MiB are free; at most {int(available / page_bytes) * PAGE_TOKENS} tokens fit"
            )
        self.memory = Memory(self.bytes, "the KV pool")

    def page(self, number: int) -> Page:
        """The memory of a page, in one run."""
        assert 0 <= number < self.pages, f"there is no page {number}"
        return Page(self.memory, self.memory.address + number * self.page_bytes, self.page_bytes)
