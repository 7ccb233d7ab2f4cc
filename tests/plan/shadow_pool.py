"""What the pages of the pool hold, row by row, and what of it other chats may find.

A row is the digest of all tokens up to its own, so that KV behind another beginning is another row.
"""

from collections import Counter
from collections.abc import Iterable

from parkway.plan.pages import PagePool
from parkway.plan.planner import Limits
from parkway.plan.step import PAGE_TOKENS, PENDING, Chunk

from .shadow_chat import NOTHING, Chat, absorb


class ShadowPool:
    """`pool` is the planner's: read for which pages are named, never for what they are named."""

    def __init__(self, limits: Limits, pool: PagePool) -> None:
        self.limits = limits
        self.pool = pool
        self.rows = [[NOTHING] * PAGE_TOKENS for _ in range(limits.pages)]
        self.last_written = [0] * limits.pages

    @property
    def named(self) -> dict[int, int]:
        """The named pages by what their last rows hold, which no two share."""
        pages = self.pool._index._names
        named = {self.rows[page][-1]: page for page in pages}
        assert len(named) == len(pages), "two named pages hold the same"
        return named

    def found(self, chat: Chat) -> tuple[int, ...]:
        """The named pages that hold the chat's first tokens, never its last one; none if it computes all itself."""
        if not self.limits.prefix_cache or not chat.request.sampling.cache_prompt or chat.owed:
            return ()
        named, pages = self.named, list[int]()
        for end in range(PAGE_TOKENS, chat.length, PAGE_TOKENS):
            if chat.rows[end - 1] not in named:
                break
            pages.append(named[chat.rows[end - 1]])
        return tuple(pages)

    def read(self, pages: Iterable[int]) -> list[int]:
        return [row for page in pages for row in self.rows[page]]

    def write(self, chunk: Chunk, step: int, last_token: int) -> int:
        """Runs a chunk; returns its last row. `last_token` is what its slot sampled last, which may be pending."""
        row = self.read(chunk.pages)[chunk.start - 1] if chunk.start else 0
        for position, token_id in enumerate(chunk.tokens, chunk.start):
            row = absorb(row, last_token if token_id == PENDING else token_id)
            page = chunk.pages[position // PAGE_TOKENS]
            self.rows[page][position % PAGE_TOKENS] = row
            self.last_written[page] = step
        return row

    def check_named(self, landed: int) -> None:
        """What is named was written by steps that have landed, `landed` of them."""
        for page in self.named.values():
            assert NOTHING not in self.rows[page], "a page is named that is not full"
            assert self.last_written[page] <= landed, "a page is named whose rows are in flight"

    def check_holders(self, chats: list[Chat], chunks: Iterable[Chunk]) -> None:
        """`chats` hold every page in use; what their chunks are about to write is nobody else's and not named."""
        holders = Counter(page for chat in chats for page in chat.pages)
        assert all(len(set(chat.pages)) == len(chat.pages) for chat in chats), "a chat holds a page twice"
        assert len(holders) == self.pool.used
        assert self.pool.used + self.pool.free == self.limits.pages
        self.pool.check()
        for chunk in chunks:
            for page in chunk.pages[chunk.start // PAGE_TOKENS :]:
                assert holders[page] == 1, "a page is written that two chats hold"
                assert page not in self.pool._index, "a page is written that others may find"
