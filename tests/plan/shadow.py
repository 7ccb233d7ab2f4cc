"""What the planner's steps must look like: a shadow of its queues, over the shadow pool and each chat's answer alone.

The shadow runs a step as soon as it is planned, as a device runs it after all that were planned before; what it sampled
is reported when the machine says so.
"""

from collections import deque

from parkway.plan.pages import pages_for
from parkway.plan.planner import IGNORED, Limits, Planner
from parkway.plan.step import PAGE_TOKENS, PENDING, Chunk, StepPlan
from parkway.request import Request

from .shadow_chat import Chat, next_token
from .shadow_pool import ShadowPool


class Shadow:
    """Follows a planner from outside and asserts, step by step, that it keeps its promises."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.planner = Planner(limits)
        self.pool = ShadowPool(limits, self.planner._pool)
        self.arrived: list[Chat] = []
        self.preempted: list[Chat] = []
        self.running: list[Chat] = []
        self.cancelled: list[Chat] = []
        self.finished: list[Chat] = []
        self.given_back = 0
        self.planned = self.landed = 0
        self.last_tokens = [-1] * limits.slots
        self.in_flight: deque[list[tuple[Chunk, Chat, int, int | None]]] = deque()

    @property
    def open(self) -> list[Chat]:
        return self.arrived + self.preempted + self.running

    @property
    def gave_back_in_flight(self) -> bool:
        """Whether the head may start although steps of its earlier stay are in flight, if there is room."""
        head = self.preempted[0] if self.preempted and self.running else None
        flying = {id(chat) for step in self.in_flight for _, chat, _, _ in step}
        return head is not None and head.known == head.length and id(head) in flying

    def arrive(self, request: Request) -> None:
        self.arrived.append(Chat.alone(request, self.limits))
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
        self.pool.check_holders(self.running, plan.chunks)
        if plan.chunks:
            self.planned += 1
            pairs = zip(chats, plan.chunks, strict=True)
            self.in_flight.append([(chunk, chat, chat.losses, self._compute(chat, chunk)) for chat, chunk in pairs])
        self.pool.check_named(self.landed)
        assert self.planner.in_flight == len(self.in_flight)
        return plan

    def land(self) -> None:
        """Reports the oldest step in flight."""
        self.landed += 1
        for chunk, chat, losses, token_id in self.in_flight.popleft():
            self._report(chunk, chat, losses, token_id)
        self.pool.check_named(self.landed)
        assert self.planner.in_flight == len(self.in_flight)
        assert self.planner.idle == (not self.open and not self.in_flight)
        assert self.open or not self.planner.pages_used

    def _report(self, chunk: Chunk, chat: Chat, losses: int, token_id: int | None) -> None:
        reason = self.planner.sampled(chunk, token_id)
        if chat.ended:
            assert reason is IGNORED, "a chat that had ended took a result"
            return
        if losses == chat.losses:
            self._check_sealed(chat, chunk)
        if token_id is not None:
            assert token_id == chat.tokens[chat.known], "not the answer that the chat gets alone"
            chat.known += 1
        done = chat.known == chat.end <= chunk.end + chunk.samples
        assert reason == (chat.reason if done else None)
        if done:
            assert not chat.owed, "a log-probability of the prompt never came"
            self._remove(chat)
            self.finished.append(chat)

    def _check_sealed(self, chat: Chat, chunk: Chunk) -> None:
        ends = range(PAGE_TOKENS, chunk.end + 1, PAGE_TOKENS)
        full = {chat.rows[end - 1] for end in ends if end > chunk.start}
        if self.limits.prefix_cache:
            assert full <= set(self.pool.named), "a page that has landed is not to be found"
        else:
            assert not self.pool.named, "a page has a name, and nobody may look for it"

    def _follow_moves(self, plan: StepPlan) -> None:
        """Who gave back on purpose, who started, who gave back for want of pages; only how many is open."""
        every = self.limits.give_back_every
        decoders = [chat for chat in self.running if chat.decodes and not chat.full]
        due = [chat for chat in decoders if every and chat.answer_tokens % every == 0]
        victims = plan.given_back[len(due) :]
        assert list(plan.given_back[: len(due)]) == [chat.slot for chat in due]
        self._give_back_on_purpose(due)
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

    def _give_back_on_purpose(self, due: list[Chat]) -> None:
        pages = {page for chat in due for page in chat.pages}
        for chat in due:
            self._preempt(chat)
        pages.difference_update(page for chat in self.running for page in chat.pages)
        assert not pages & set(self.pool.named.values()), "who is to compute everything again would find its pages"

    def _start(self) -> None:
        """The next in line, on the pages that it finds. Whoever starts comes before whoever takes pages."""
        if self.preempted:
            assert self.preempted[0].known == self.preempted[0].length, "a token of its own is still in flight"
            chat = self.preempted.pop(0)
        else:
            chat = self.arrived.pop(0)
            chat.slot = min(set(range(self.limits.slots)) - {other.slot for other in self.running})
        chat.pages = self.pool.found(chat)
        chat.computed = len(chat.pages) * PAGE_TOKENS
        assert chat.computed < chat.length, "the last token is to be computed"
        if not chat.losses:
            chat.cached = chat.computed
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
            assert self._promised(self.running) + self._misses(waiting[0]) > self.limits.pages, "the head waits in vain"

    def _promised(self, chats: list[Chat]) -> int:
        """Pages that are held and those that their next tokens will need; a page counts once."""
        held = {page for chat in chats for page in chat.pages}
        return len(held) + sum(pages_for(chat.length + 1) - len(chat.pages) for chat in chats)

    def _misses(self, chat: Chat) -> int:
        """Pages that the pool must find for a chat that waits. What is found but held by nobody takes room as well."""
        held = {page for other in self.running for page in other.pages}
        return pages_for(chat.length + 1) - len(held.intersection(self.pool.found(chat)))

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
        held = self.pool.read(chunk.pages)
        assert held[: chunk.start] == chat.rows[: chunk.start], "an earlier row is not of this chat's own tokens"
        assert chunk.cached == chat.cached
        chat.pages = chunk.pages

    def _check_scored(self, chat: Chat, chunk: Chunk) -> None:
        owed = chat.owed
        rows = [position - chunk.start for position in range(chunk.start, chunk.end) if position in owed]
        assert list(chunk.scored_rows) == rows
        chat.scored.update(position + chunk.start for position in rows)

    def _compute(self, chat: Chat, chunk: Chunk) -> int | None:
        """Runs a chunk; returns what it samples."""
        row = self.pool.write(chunk, self.planned, self.last_tokens[chunk.slot])
        chat.computed = chunk.end
        if not chunk.samples:
            return None
        chat.length, chat.decodes = chat.length + 1, True
        self.last_tokens[chunk.slot] = next_token(row)
        return self.last_tokens[chunk.slot]
