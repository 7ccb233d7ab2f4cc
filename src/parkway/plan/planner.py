"""Decides what each step computes: who starts, decodes, prefills, gives pages back. Events in, StepPlan out.

Chats run in the order in which they started. The first of them is the leader: it is never asked for its pages, so
every step brings it forward, and since everybody becomes the leader or ends before, everybody ends.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from parkway.plan.pages import PagePool, pages_for
from parkway.plan.slot import Slot, State
from parkway.plan.step import PAGE_TOKENS, Chunk, StepPlan
from parkway.request import Request


@dataclass(frozen=True, slots=True)
class Limits:
    """What the planner has to give. `n_ctx`: most tokens of one chat; one chat alone always fits the pool.

    A step has `batch_tokens` rows, `logit_rows` of them with logits; both suffice for every slot to decode.
    `chunk_tokens` caps one chat's rows. `give_back_every=N` makes each chat give its pages back every N answer tokens.
    """

    slots: int
    pages: int
    n_ctx: int
    batch_tokens: int
    logit_rows: int
    chunk_tokens: int | None = None
    give_back_every: int = 0

    def __post_init__(self) -> None:
        assert self.slots >= 1, "there must be a slot"
        assert 2 <= self.n_ctx <= self.pages * PAGE_TOKENS, "one chat must fit the pool alone"
        assert self.batch_tokens >= self.slots, "a step must hold a token of every slot"
        assert self.logit_rows >= self.slots, "a step must hold the logits of every slot"
        assert self.chunk_tokens is None or self.chunk_tokens >= 1, "a chunk must hold a token"
        assert self.give_back_every >= 0, "pages can't be given back every so many tokens"


@dataclass(slots=True)
class _Draft:
    """A step while it is being put together: what is left of it, and up to which position each chat computes."""

    tokens_left: int
    rows_left: int
    ends: dict[Slot, int] = field(default_factory=dict)
    given_back: list[int] = field(default_factory=list)


class Planner:
    """The chats of one pool. `given_back` counts how often a running chat gave its pages back."""

    def __init__(self, limits: Limits) -> None:
        self.given_back = 0
        self._limits = limits
        self._pool = PagePool(limits.pages)
        self._slots: list[Slot | None] = [None] * limits.slots
        self._arrived: OrderedDict[int, Request] = OrderedDict()
        self._preempted: deque[Slot] = deque()
        self._running: list[Slot] = []
        self._chunks_in_flight = 0

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that have not started and chats that gave their pages back."""
        return len(self._arrived) + len(self._preempted)

    @property
    def pages_used(self) -> int:
        return self._pool.used

    @property
    def idle(self) -> bool:
        return not self._running and not self.waiting

    def arrive(self, request: Request) -> None:
        """Queues a request. Its prompt has a token at least and leaves room for one more."""
        assert 0 < len(request.prompt) < self._limits.n_ctx, f"request {request.id} was not checked"
        self._arrived[request.id] = request

    def cancel(self, request_id: int) -> bool:
        """Ends a request wherever it is; False if it is not here. A result that still comes for it is ignored."""
        if self._arrived.pop(request_id, None):
            return True
        for slot in self._slots:
            if slot and slot.request.id == request_id:
                self._end(slot, State.CANCELLED)
                return True
        return False

    def plan(self) -> StepPlan:
        """The next step. Every chunk of the one before must have been reported to `sampled`. Empty only when idle."""
        assert not self._chunks_in_flight, f"{self._chunks_in_flight} results of the last step are missing"
        step = _Draft(self._limits.batch_tokens, self._limits.logit_rows)
        self._give_back_on_purpose(step)
        self._start()
        self._add_decoders(step)
        self._add_prefills(step)
        self._chunks_in_flight = len(step.ends)
        return StepPlan(tuple([slot.advance(end) for slot, end in step.ends.items()]), tuple(step.given_back))

    def sampled(self, chunk: Chunk, token_id: int | None) -> str | None:
        """Takes a chunk's result (None if it does not sample); returns the finish reason if this ended the chat."""
        assert chunk.samples == (token_id is not None), f"slot {chunk.slot}: a token is missing or too many"
        self._chunks_in_flight -= 1
        slot = self._slots[chunk.slot]
        if slot is None or slot.request.id != chunk.request.id:
            return None
        if token_id is not None:
            slot.tokens.append(token_id)
        elif chunk.end < len(slot.tokens):
            return None
        reason = slot.finish_reason
        if reason:
            self._end(slot, State.FINISHED)
        return reason

    def _give_back_on_purpose(self, step: _Draft) -> None:
        every = self._limits.give_back_every
        if not every:
            return
        for slot in self._running.copy():
            if slot.state is State.DECODE and slot.answer_tokens % every == 0:
                self._give_back(slot, step)

    def _start(self) -> None:
        """Starts who fits behind what the running chats will need: given-back chats first, nobody passes the head."""
        if not self._preempted and (not self._arrived or None not in self._slots):
            return
        room = self._pool.free - sum(pages_for(len(slot.tokens) + 1) - len(slot.pages) for slot in self._running)
        while self._preempted and (need := pages_for(len(self._preempted[0].tokens) + 1)) <= room:
            room -= need
            slot = self._preempted.popleft()
            slot.move(State.REPLAYING)
            self._running.append(slot)
        while not self._preempted and self._arrived and None in self._slots:
            request = next(iter(self._arrived.values()))
            room -= pages_for(len(request.prompt) + 1)
            if room < 0:
                return
            del self._arrived[request.id]
            index = self._slots.index(None)
            slot = self._slots[index] = Slot.start(index, request, self._limits.n_ctx)
            self._running.append(slot)

    def _add_decoders(self, step: _Draft) -> None:
        for slot in self._running.copy():  # those that give back on the way have changed their state
            if slot.state is State.DECODE:
                self._add(slot, len(slot.tokens), step)

    def _add_prefills(self, step: _Draft) -> None:
        for slot in self._running.copy():
            if slot.state is State.PREFILL or slot.state is State.REPLAYING:
                self._add(slot, self._prefill_end(slot, step), step)

    def _prefill_end(self, slot: Slot, step: _Draft) -> int:
        """Up to which position a chat can prefill with the rows that are left, those with logits and all."""
        most = min(step.tokens_left, self._limits.chunk_tokens or step.tokens_left)
        end = min(len(slot.tokens), slot.computed + most)
        owed = slot.scoring(end)
        if len(owed) > step.rows_left:
            return owed[step.rows_left]
        return end - 1 if slot.samples(end) and len(owed) == step.rows_left else end

    def _add(self, slot: Slot, end: int, step: _Draft) -> None:
        if end == slot.computed or not self._take_pages(slot, end, step):
            return
        step.ends[slot] = end
        step.tokens_left -= end - slot.computed
        step.rows_left -= len(slot.scoring(end)) + slot.samples(end)

    def _take_pages(self, slot: Slot, end: int, step: _Draft) -> bool:
        """Takes what the chat misses up to `end`. The youngest give their pages back for it, itself included."""
        missing = pages_for(end) - len(slot.pages)
        if missing <= 0:
            return True
        while (pages := self._pool.take(missing)) is None:
            youngest = self._running[-1]
            self._give_back(youngest, step)
            if youngest is slot:
                return False
        slot.pages += pages
        return True

    def _give_back(self, slot: Slot, step: _Draft) -> None:
        """The chat leaves the step without its pages and waits to be computed again."""
        slot.move(State.PREEMPTED)
        self._leave(slot)
        slot.computed = 0
        self._preempted.append(slot)
        step.ends.pop(slot, None)
        step.given_back.append(slot.index)
        self.given_back += 1

    def _leave(self, slot: Slot) -> None:
        self._running.remove(slot)
        self._pool.give(slot.pages)
        slot.pages = ()

    def _end(self, slot: Slot, state: State) -> None:
        if slot.state is State.PREEMPTED:
            self._preempted.remove(slot)
        else:
            self._leave(slot)
        slot.move(state)
        self._slots[slot.index] = None
        if self.idle:
            assert not self._pool.used, "somebody left without giving its pages back"
            self._pool.check()
