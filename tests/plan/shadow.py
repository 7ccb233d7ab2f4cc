"""What the planner's steps must look like: a shadow pool, a toy model and each chat's answer as it would be alone.

The shadow runs a step as soon as it is planned, as a device runs it after all that were planned before; what it sampled
is reported when the machine says so.
"""

from collections import deque
from dataclasses import dataclass, field

from parkway.plan.pages import pages_for
from parkway.plan.planner import IGNORED, Limits, Planner
from parkway.plan.step import PAGE_TOKENS, PENDING, Chunk, StepPlan
from parkway.request import Request

Row = tuple[int, int, int]  # number of the chat, position, digest of all tokens up to here


def absorb(digest: int, token_id: int) -> int:
    return (digest * 31 + token_id + 1) % 1_000_003


def next_token(digest: int) -> int:
    return digest % 97


@dataclass(eq=False)
class Chat:
    """A request with all that will come of it, and how far the planner has brought it.

    `tokens` are prompt and answer, `end` of them, and after a stop id what steps in flight may sample before it is
    known. `rows` are theirs. `length` counts the `known` tokens and those in flight.
    """

    request: Request
    number: int
    tokens: list[int]
    end: int
    reason: str
    rows: list[Row]
    max_length: int
    known: int
    length: int
    slot: int = -1
    computed: int = 0
    decodes: bool = False
    scored: set[int] = field(default_factory=set)
    pages: tuple[int, ...] = ()
    ended: bool = False

    @classmethod
    def alone(cls, request: Request, number: int, limits: Limits) -> "Chat":
        tokens, prompt, most = list(request.prompt), len(request.prompt), request.sampling.max_tokens
        max_length = limits.n_ctx if most is None else min(limits.n_ctx, prompt + most)
        stop_ids = frozenset() if request.sampling.ignore_eos else request.stop_ids
        end, reason = max_length, "length"
        rows: list[Row] = []
        digest = 0
        while len(rows) < min(max_length, end + limits.ahead):
            if len(rows) == len(tokens):
                tokens.append(next_token(digest))
                if reason == "length" and tokens[-1] in stop_ids:
                    end, reason = len(tokens), "stop"
            digest = absorb(digest, tokens[len(rows)])
            rows.append((number, len(rows), digest))
        return cls(request, number, tokens, end, reason, rows, max_length, known=prompt, length=prompt)

    @property
    def answer_tokens(self) -> int:
        return self.length - len(self.request.prompt)

    @property
    def full(self) -> bool:
        return self.decodes and self.length == self.max_length

    @property
    def waits(self) -> bool:
        """There is nothing to compute before what is in flight has landed."""
        return self.full or self.computed == self.length

    def lose_pages(self) -> None:
        self.computed, self.pages, self.decodes = 0, (), False


class Shadow:
    """Follows a planner from outside and asserts, step by step, that it keeps its promises."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.planner = Planner(limits)
        self.pool: list[list[Row | None]] = [[None] * PAGE_TOKENS for _ in range(limits.pages)]
        self.arrived: list[Chat] = []
        self.preempted: list[Chat] = []
        self.running: list[Chat] = []
        self.cancelled: list[Chat] = []
        self.given_back = 0
        self.chats = 0
        self.last_tokens = [-1] * limits.slots
        self.in_flight: deque[list[tuple[Chunk, Chat, int | None]]] = deque()

    @property
    def open(self) -> list[Chat]:
        return self.arrived + self.preempted + self.running

    def arrive(self, request: Request) -> None:
        self.arrived.append(Chat.alone(request, self.chats, self.limits))
        self.chats += 1
        self.planner.arrive(request)

    def cancel(self, chat: Chat) -> None:
        assert self.planner.cancel(chat.request.id)
        assert not self.planner.cancel(chat.request.id)
        self._remove(chat)
        self.cancelled.append(chat)

    def plan(self) -> StepPlan:
        plan = self.planner.plan()
        self._follow_moves(plan)
        assert plan.chunks or self.in_flight or not self.open, "nothing to compute and nothing to wait for"
        chats = [self._owner(chunk) for chunk in plan.chunks]
        self._check_order(chats, plan)
        self._check_budget(chats, plan)
        for chat, chunk in zip(chats, plan.chunks, strict=True):
            self._check_chunk(chat, chunk)
            self._check_scored(chat, chunk)
        self._check_pages()
        if plan.chunks:
            pairs = zip(chats, plan.chunks, strict=True)
            self.in_flight.append([(chunk, chat, self._compute(chat, chunk)) for chat, chunk in pairs])
        assert self.planner.in_flight == len(self.in_flight)
        return plan

    def land(self) -> None:
        """Reports the oldest step in flight."""
        for chunk, chat, token_id in self.in_flight.popleft():
            self._report(chunk, chat, token_id)
        assert self.planner.in_flight == len(self.in_flight)
        assert self.planner.idle == (not self.open and not self.in_flight)
        assert self.open or not self.planner.pages_used

    def _report(self, chunk: Chunk, chat: Chat, token_id: int | None) -> None:
        reason = self.planner.sampled(chunk, token_id)
        if chat.ended:
            assert reason is IGNORED, "a chat that had ended took a result"
            return
        if token_id is not None:
            assert token_id == chat.tokens[chat.known], "not the answer that the chat gets alone"
            chat.known += 1
        done = chat.known == chat.end <= chunk.end + chunk.samples
        assert reason == (chat.reason if done else None)
        if done:
            self._check_all_scored(chat)
            self._remove(chat)

    def _follow_moves(self, plan: StepPlan) -> None:
        """Who gave back on purpose, who started, who gave back for want of pages; only how many is open."""
        every = self.limits.give_back_every
        decoders = [chat for chat in self.running if chat.decodes and not chat.full]
        due = [chat for chat in decoders if every and chat.answer_tokens % every == 0]
        victims = plan.given_back[len(due) :]
        assert list(plan.given_back[: len(due)]) == [chat.slot for chat in due]
        for chat in due:
            self._preempt(chat)
        starts = self.planner.running - len(self.running) + len(victims)
        assert not (starts and victims), "somebody started on pages that others needed"
        for _ in range(starts):
            self._start()
        if starts:
            assert self._promised(self.running) <= self.limits.pages, "somebody started without room"
        if not victims:
            self._check_head_must_wait()
        for index in victims:
            assert len(self.running) > 1, "the leader gave its pages back"
            assert self.running[-1].slot == index, "not the youngest gave its pages back"
            self._preempt(self.running[-1])
        assert self.planner.given_back == self.given_back
        assert self.planner.running == len(self.running)
        assert self.planner.waiting == len(self.arrived) + len(self.preempted)

    def _start(self) -> None:
        if self.preempted:
            assert self.preempted[0].known == self.preempted[0].length, "a token of its own is still in flight"
            self.running.append(self.preempted.pop(0))
            return
        chat = self.arrived.pop(0)
        taken = {other.slot for other in self.running}
        chat.slot = min(set(range(self.limits.slots)) - taken)
        self.running.append(chat)

    def _preempt(self, chat: Chat) -> None:
        self.running.remove(chat)
        chat.lose_pages()
        self.preempted.append(chat)
        self.given_back += 1

    def _remove(self, chat: Chat) -> None:
        for chats in (self.arrived, self.preempted, self.running):
            if chat in chats:
                chats.remove(chat)
        chat.ended = True

    def _check_head_must_wait(self) -> None:
        slots_left = self.limits.slots - len(self.running) - len(self.preempted)
        waiting = self.preempted or self.arrived[: max(slots_left, 0)]
        if waiting and waiting[0].known == waiting[0].length:
            assert self._promised([*self.running, waiting[0]]) > self.limits.pages, "the head waits in vain"

    def _promised(self, chats: list[Chat]) -> int:
        return sum(pages_for(chat.length + 1) for chat in chats)

    def _owner(self, chunk: Chunk) -> Chat:
        chat = next((chat for chat in self.running if chat.request is chunk.request), None)
        assert chat, "somebody computes who has not started, was passed or has ended"
        assert chat.slot == chunk.slot
        return chat

    def _check_order(self, chats: list[Chat], plan: StepPlan) -> None:
        in_order = [chat for chat in self.running if chat in chats]
        assert chats == sorted(in_order, key=lambda chat: not chat.decodes), "decoders first, each kind as it started"
        assert all(chat in chats for chat in self.running if chat.decodes and not chat.full), "a decoder was left out"
        assert all(chat in chats for chat in self.running[:1] if not chat.waits), "the leader was left out"

    def _check_budget(self, chats: list[Chat], plan: StepPlan) -> None:
        limits = self.limits
        tokens = sum(len(chunk.tokens) for chunk in plan.chunks)
        rows = sum(len(chunk.scored_rows) + chunk.samples for chunk in plan.chunks)
        assert tokens <= limits.batch_tokens
        assert rows <= limits.logit_rows
        assert all(1 <= len(chunk.tokens) <= (limits.chunk_tokens or tokens) for chunk in plan.chunks)
        if tokens < limits.batch_tokens and rows < limits.logit_rows and not plan.given_back:
            ends = {id(chat): chunk.end for chat, chunk in zip(chats, plan.chunks, strict=True)}
            for chat in self.running:
                most = min(chat.length, chat.computed + (limits.chunk_tokens or chat.length))
                assert ends.get(id(chat)) == (None if chat.waits else most), "rows were left over that a chat could use"

    def _check_chunk(self, chat: Chat, chunk: Chunk) -> None:
        assert chunk.start == chat.computed
        assert not chat.full, "nothing may follow the token in flight"
        assert chunk.end <= chat.length
        known = chat.tokens[chunk.start : min(chunk.end, chat.known)]
        assert list(chunk.tokens) == known + [PENDING] * (chunk.end > chat.known)
        assert chunk.samples == (chunk.end == chat.length < chat.max_length)
        assert len(chunk.pages) == pages_for(chunk.end)
        assert chunk.pages[: len(chat.pages)] == chat.pages, "a page of a running chat moved"
        held = [row for page in chunk.pages for row in self.pool[page]]
        assert held[: chunk.start] == chat.rows[: chunk.start], "an earlier row is not this chat's own"
        chat.pages = chunk.pages

    def _check_scored(self, chat: Chat, chunk: Chunk) -> None:
        scores = chat.request.sampling.prompt_logprobs is not None
        owed = set(range(len(chat.request.prompt) - 1)) - chat.scored if scores else set()
        rows = [position - chunk.start for position in range(chunk.start, chunk.end) if position in owed]
        assert list(chunk.scored_rows) == rows
        chat.scored.update(position + chunk.start for position in rows)

    def _check_all_scored(self, chat: Chat) -> None:
        if chat.request.sampling.prompt_logprobs is not None:
            assert chat.scored == set(range(len(chat.request.prompt) - 1))

    def _check_pages(self) -> None:
        held = [page for chat in self.running for page in chat.pages]
        assert len(set(held)) == len(held), "two chats hold one page"
        assert len(held) == self.planner.pages_used

    def _compute(self, chat: Chat, chunk: Chunk) -> int | None:
        """Runs a chunk; returns what it samples. A pending token is the last that was sampled in its slot."""
        digest = self._row(chunk.pages, chunk.start - 1)[2] if chunk.start else 0
        for position, token_id in enumerate(chunk.tokens, chunk.start):
            digest = absorb(digest, self.last_tokens[chunk.slot] if token_id == PENDING else token_id)
            page = self.pool[chunk.pages[position // PAGE_TOKENS]]
            page[position % PAGE_TOKENS] = (chat.number, position, digest)
        chat.computed = chunk.end
        if not chunk.samples:
            return None
        chat.length, chat.decodes = chat.length + 1, True
        self.last_tokens[chunk.slot] = next_token(digest)
        return self.last_tokens[chunk.slot]

    def _row(self, pages: tuple[int, ...], position: int) -> Row:
        row = self.pool[pages[position // PAGE_TOKENS]][position % PAGE_TOKENS]
        assert row is not None, "a row is read that nobody wrote"
        return row
