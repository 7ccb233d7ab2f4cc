"""What the pages of a pool hold, row by row, and what of it may be found. On the device or on the host.

A row is the digest of all tokens up to its own, so that KV behind another beginning is another row.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from itertools import takewhile
from math import inf

from parkway.plan.chats import Chats
from parkway.plan.pages import PagePool
from parkway.plan.slot import Slot
from parkway.plan.step import PAGE_TOKENS, PENDING, Chunk

from .shadow_chat import NOTHING, Chat, absorb


@dataclass(frozen=True)
class Sight:
    """The first and the last rows of all pages that are named at a moment."""

    firsts: frozenset[int]
    lasts: frozenset[int]


def met(chat: Chat, lasts: Container[int]) -> list[int]:
    """Ends of the pages that hold the chat's first tokens, named by their last rows, never its last token; none if it
    computes all itself."""
    if not chat.request.sampling.cache_prompt or chat.owed - {len(chat.request.prompt) - 1}:
        return []
    return list(takewhile(lambda end: chat.rows[end - 1] in lasts, range(PAGE_TOKENS, chat.length, PAGE_TOKENS)))


class ShadowPool:
    """`pool` is the planner's: read for which pages are named, referenced and pinned, never for what they are named."""

    def __init__(self, total: int, pool: PagePool) -> None:
        self.total = total
        self.pool = pool
        self.rows = [[NOTHING] * PAGE_TOKENS for _ in range(total)]
        self.last_written: list[float] = [0] * total
        """By which step; for ever in the future while a copy into the page has not landed."""
        self.sights: dict[int, Sight] = {}
        """What each request saw when it came in the last time: the rest of the plan may have taken some of it."""

    def watch(self, chats: Chats) -> None:
        """From now on whoever comes in looks around."""

        def looks(comes_in: Callable[[Slot], None]) -> Callable[[Slot], None]:
            def look_and_come_in(slot: Slot) -> None:
                self.sights[slot.request.id] = self.sight()
                comes_in(slot)

            return look_and_come_in

        chats.start, chats.come_back = looks(chats.start), looks(chats.come_back)  # type: ignore[assignment, method-assign]

    def sight(self) -> Sight:
        named = self.named
        return Sight(frozenset(self.rows[page][0] for page in named.values()), frozenset(named))

    @property
    def named(self) -> dict[int, int]:
        """The named pages by what their last rows hold, which no two share."""
        pages = self.pool._index._names
        named = {self.rows[page][-1]: page for page in pages}
        assert len(named) == len(pages), "two named pages hold the same"
        return named

    def found(self, chat: Chat) -> list[int]:
        """The named pages that it meets."""
        named = self.named
        return [named[chat.rows[end - 1]] for end in met(chat, named)]

    def held(self, pages: Iterable[int]) -> int:
        """How many of these pages somebody holds."""
        return sum([bool(self.pool._references[page] or self.pool._pins[page]) for page in pages])

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

    def await_copy(self, pages: Iterable[int]) -> None:
        """From now on a copy may write these pages, at any moment until it has landed."""
        for page in pages:
            assert page not in self.pool._index, "a page is copied to that others may find"
            self.rows[page] = [NOTHING] * PAGE_TOKENS
            self.last_written[page] = inf

    def check_sealed(self, chat: Chat, chunk: Chunk, *, prefix_cache: bool) -> None:
        """What a chunk that has landed filled can be found, if anybody may look for it."""
        ends = range(PAGE_TOKENS, chunk.end + 1, PAGE_TOKENS)
        full = {chat.rows[end - 1] for end in ends if end > chunk.start}
        if prefix_cache:
            assert full <= set(self.named), "a page that has landed is not to be found"
        else:
            assert not self.named, "a page has a name, and nobody may look for it"

    def check_named(self, landed: int) -> None:
        """What is named was written by steps and copies that have landed, the first `landed` of the steps."""
        for page in self.named.values():
            assert NOTHING not in self.rows[page], "a page is named that is not full"
            assert self.last_written[page] <= landed, "a page is named whose rows are in flight"

    def check_counts(self, references: Counter[int], pins: Counter[int]) -> None:
        """The pool's book says what chats and open copies hold, and it adds up."""
        pool = self.pool
        assert pool._references == [references[page] for page in range(self.total)], (
            "who holds pages is not in the book"
        )
        assert pool._pins == [pins[page] for page in range(self.total)], "pins are not those of the open copies"
        assert pool.used == len(references.keys() | pins.keys())
        assert pool.used + pool.free == self.total
        pool.check()
