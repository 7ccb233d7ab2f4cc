"""The pool's pages on the CPU: one run of memory, page after page, given by the system when first touched."""

import psutil

from parkway.backends.cpu.library import Memory
from parkway.errors import NoRoom
from parkway.plan.step import PAGE_TOKENS


class PageStore:
    """`pages` pages of `page_bytes` each. Raises NoRoom where the machine can't hold them."""

    def __init__(self, tokens: int, page_bytes: int) -> None:
        self.pages = -(-tokens // PAGE_TOKENS)
        self.bytes = self.pages * page_bytes
        available = psutil.virtual_memory().available
        if self.bytes > available:
            raise NoRoom(
                f"--ctx-size {tokens}: the KV pool needs {self.bytes / 2**20:,.0f} MiB, "
                f"{available / 2**20:,.0f} MiB are free; at most {int(available / page_bytes) * PAGE_TOKENS} tokens fit"
            )
        self.memory = Memory(self.bytes, "the KV pool")
