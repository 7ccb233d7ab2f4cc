"""What slots and checkpoints hold of a model with states: the digest of all tokens that a state has taken in."""

from collections import Counter
from collections.abc import Iterable
from math import inf

from parkway.plan.checkpoints import Checkpoints
from parkway.plan.limits import Limits
from parkway.plan.slot import Slot
from parkway.plan.step import PAGE_TOKENS, Chunk

from .shadow_chat import NOTHING, VOCABULARY, Chat, absorb
from .shadow_pool import Sight, met


class ShadowStates:
    """`checkpoints` are the planner's: read for which have names, never for what they are named."""

    def __init__(self, limits: Limits, checkpoints: Checkpoints) -> None:
        self.needed = limits.checkpoints is not None and limits.prefix_cache
        self.total = limits.checkpoints or 0 if self.needed else 0
        self.interval = limits.interval
        self.units = checkpoints._units
        self.of_slots = [NOTHING] * limits.slots
        self.of_units = [NOTHING] * self.total
        self.last_written: list[float] = [-1] * self.total
        """By which step."""
        self.found = set[int]()
        """What was there when a step was about to be planned, which may take some of it."""

        self.read = set[int | None]()
        """By the step that was planned last: another chat of it may have come too early to write them."""

    def look(self) -> None:
        self.found = {self.of_units[unit] for unit in self.units._named.values()}

    def begin(self, chunks: Iterable[Chunk]) -> None:
        """Copies before a step."""
        self.read = {chunk.state_from for chunk in chunks}
        for chunk in chunks:
            if chunk.state_from is not None:
                self.of_slots[chunk.slot] = self.of_units[chunk.state_from]

    def check(self, chat: Chat, chunk: Chunk) -> None:
        """It goes on from the state that its own tokens have left, and leaves one where one is due."""
        if not self.needed:
            assert chunk.state_from is chunk.state_to is None, "a state is copied, and there is none"
        elif chunk.start:
            assert self.of_slots[chunk.slot] == chat.rows[chunk.start - 1], "the state is not that of its tokens"
        due = self.total > 0 and chunk.end == self.next_place(chat, chunk.start)
        assert due or chunk.state_to is None, "a checkpoint is taken where none is due"
        assert not due or chunk.state_to is not None or not self._spare, "no checkpoint is taken where one is due"

    def run(self, chat: Chat, chunk: Chunk) -> None:
        self.of_slots[chunk.slot] = chat.rows[chunk.end - 1] if chunk.end <= len(chat.rows) else NOTHING

    def keep(self, chunks: Iterable[Chunk], step: int) -> None:
        """Copies behind a step."""
        for chunk in chunks:
            if chunk.state_to is not None:
                self.of_units[chunk.state_to] = self.of_slots[chunk.slot]
                self.last_written[chunk.state_to] = step

    def next_place(self, chat: Chat, tokens: int) -> float:
        """Where a chat with so many tokens leaves a checkpoint next."""
        if not self.total:
            return inf
        last = (chat.given - 1) // PAGE_TOKENS * PAGE_TOKENS
        places = {tokens - tokens % self.interval + self.interval, last, chat.branch}
        return min(place for place in places if place > tokens)

    def branch(self, chat: Chat, sight: Sight) -> int:
        """Where a chat that has just come in leaves a checkpoint because a page of others follows those that it met and
        does not begin behind, whose tokens the chat does not have."""
        ends = met(chat, sight.lasts) if self.total else []
        if not ends or ends[-1] <= chat.computed:
            return 0
        follows = {absorb(chat.rows[ends[-1] - 1], token_id) for token_id in range(VOCABULARY)}
        return 0 if follows.isdisjoint(sight.firsts) else ends[-1]

    def reached(self, chat: Chat, pages: list[int]) -> list[int]:
        """Those of the pages that it found behind which there is a checkpoint."""
        if not self.needed:
            return pages
        ends = [count for count in range(1, len(pages) + 1) if chat.rows[count * PAGE_TOKENS - 1] in self.found]
        return pages[: max(ends, default=0)]

    def check_books(self, slots: Iterable[Slot], in_flight: Iterable[Chunk], landed: int) -> None:
        """The book says who is to begin where and what is written; who is found has been written."""
        self.units.check()
        held = Counter(slot.state_from for slot in slots if slot.state_from is not None)
        assert self.units._held == [held[unit] for unit in range(self.total)], "who begins where is not in the book"
        written = [chunk.state_to for chunk in in_flight if chunk.state_to is not None]
        assert sorted(self.units._written) == sorted(written), "what is written is not in the book"
        for unit in self.units._named.values():
            assert self.last_written[unit] <= landed, "a checkpoint is found that is in flight"

    @property
    def _spare(self) -> bool:
        units = self.units
        return bool(units._free) or any(not units._held[unit] for unit in {*units._named.values()} - self.read)
