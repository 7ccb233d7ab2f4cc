"""Steps as the device runs them: at once and in their order, while what they sampled is reported later."""

from collections import Counter, deque

from parkway.plan.copies import Copy
from parkway.plan.limits import Limits
from parkway.plan.pages import pages_for
from parkway.plan.step import PAGE_TOKENS, PENDING, Chunk, StepPlan

from .shadow_chat import Chat, next_token
from .shadow_pool import ShadowPool
from .shadow_states import ShadowStates


class ShadowSteps:
    """Runs plans on the rows of `device` and checks each chunk."""

    def __init__(self, limits: Limits, device: ShadowPool, states: ShadowStates) -> None:
        self.limits = limits
        self.device = device
        self.states = states
        self.planned = self.landed = 0
        self.last_tokens = [-1] * limits.slots
        self.in_flight: deque[list[tuple[Chunk, Chat, int | None]]] = deque()

    def run(self, chats: list[Chat], plan: StepPlan) -> None:
        self._check_budget(plan)
        self.states.begin(plan.chunks)
        for chat, chunk in zip(chats, plan.chunks, strict=True):
            self._check_chunk(chat, chunk)
            self._check_scored(chat, chunk)
            self._check_written(chunk)
            self.states.check(chat, chunk)
        if plan.chunks:
            self.planned += 1
            pairs = zip(chats, plan.chunks, strict=True)
            self.in_flight.append([(chunk, chat, self._compute(chat, chunk)) for chat, chunk in pairs])
            self.states.keep(plan.chunks, self.planned)
        written = Counter(page for chunk in plan.chunks for page in self._written(chunk))
        assert not written or max(written.values()) == 1, "two chats write a page"

    def check_settled(self, copies: tuple[Copy, ...]) -> None:
        """No step in flight touches what is copied without waiting for it."""
        chunks = [chunk for step in self.in_flight for chunk, _, _ in step]
        used = {page for chunk in chunks for page in chunk.pages}
        written = {page for chunk in chunks for page in self._written(chunk)}
        for copy in copies:
            pages, touched = (copy.targets, used) if copy.from_host else (copy.sources, written)
            assert touched.isdisjoint(pages[: copy.settled]), "a copy does not wait for a step that touches its page"

    def land(self) -> list[tuple[Chunk, Chat, int | None]]:
        """What the oldest step in flight brought."""
        self.landed += 1
        return self.in_flight.popleft()

    def check_rows(self, waiting: list[Chat], plan: StepPlan, may_wait: dict[Chat, int]) -> None:
        """Everybody has its rows as long as there are some, or `may_wait` for pages beyond those that it has."""
        limits = self.limits
        tokens, rows = limits.batch_tokens, limits.logit_rows
        ends = {chunk.slot: chunk for chunk in plan.chunks}
        for chunk in plan.chunks:
            tokens -= len(chunk.tokens)
            rows -= len(chunk.scored_rows) + chunk.samples
        for chat in waiting:
            most = min(chat.length, chat.computed + (limits.chunk_tokens or chat.length))
            most = int(min(most, self.states.next_place(chat, chat.computed)))
            waits = chat in may_wait and pages_for(chat.computed + 1) >= may_wait[chat]
            if tokens and rows and not waits:
                assert chat.view.id in ends, "rows were left over that a chat could use"
                assert ends[chat.view.id].end == most, "a chat could have had more rows"

    def _check_budget(self, plan: StepPlan) -> None:
        limits = self.limits
        tokens = sum(len(chunk.tokens) for chunk in plan.chunks)
        assert tokens <= limits.batch_tokens
        assert sum(len(chunk.scored_rows) + chunk.samples for chunk in plan.chunks) <= limits.logit_rows
        assert all(1 <= len(chunk.tokens) <= (limits.chunk_tokens or tokens) for chunk in plan.chunks)

    def _check_chunk(self, chat: Chat, chunk: Chunk) -> None:
        assert chunk.start == chat.computed
        assert not chat.full, "nothing may follow the token in flight"
        assert not chat.awaits_token, "a token is chosen whose history is not known"
        assert chunk.end <= chat.length
        known = chat.tokens[chunk.start : min(chunk.end, chat.known)]
        assert list(chunk.tokens) == known + [PENDING] * (chunk.end > chat.known)
        assert chunk.samples == (chunk.end == chat.length < chat.max_length)
        assert len(chunk.pages) == pages_for(chunk.end)
        held = self.device.read(chunk.pages)
        assert held[: chunk.start] == chat.rows[: chunk.start], "an earlier row is not of this chat's own tokens"
        assert chunk.cached == chat.cached

    def _check_scored(self, chat: Chat, chunk: Chunk) -> None:
        owed = chat.owed
        rows = [position - chunk.start for position in range(chunk.start, chunk.end) if position in owed]
        assert list(chunk.scored_rows) == rows
        chat.scored.update(position + chunk.start for position in rows)

    def _check_written(self, chunk: Chunk) -> None:
        """A chunk reads its pages in this step and writes the last of them."""
        pool = self.device.pool
        for page in self._written(chunk):
            assert pool._references[page] == 1, "a page is written that two chats hold"
            assert not pool._pins[page], "a page is written that a copy touches"
            assert page not in pool._index, "a page is written that others may find"

    def _written(self, chunk: Chunk) -> tuple[int, ...]:
        return chunk.pages[chunk.start // PAGE_TOKENS :]

    def _compute(self, chat: Chat, chunk: Chunk) -> int | None:
        """Runs a chunk; returns what it samples."""
        row = self.device.write(chunk, self.planned, self.last_tokens[chunk.slot])
        self.states.run(chat, chunk)
        chat.computed = chunk.end
        chat.flying += 1
        if not chunk.samples:
            return None
        chat.length += 1
        self.last_tokens[chunk.slot] = next_token(row, chunk.next_index)
        return self.last_tokens[chunk.slot]


def owner(inside: list[Chat], chunk: Chunk) -> Chat:
    """Whose chunk it is."""
    chat = next((chat for chat in inside if chat.request is chunk.request), None)
    assert chat, "somebody computes who has not started or has ended"
    assert chat.runs, "somebody computes who is out"
    assert chat.view.id == chunk.slot
    return chat
