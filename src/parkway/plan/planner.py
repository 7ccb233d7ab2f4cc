"""Decides what each step computes: who starts, decodes, prefills, gives pages back. Events in, StepPlan out.

Chats run in the order in which they started. The first of them is the leader: it is never asked for its pages, so
every step brings it forward or waits for its last token, and since everybody becomes the leader or ends before,
everybody ends.

A step may be planned while others are in flight: their tokens are counted before they are known. A chat that gives its
pages back may have a chunk in flight that still uses them. They can be handed out at once, because the device runs
steps in their order: whoever takes them writes in a later step. Only within one step a page has one owner.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from parkway.plan.pages import PagePool, pages_for
from parkway.plan.slot import Slot, State
from parkway.plan.step import PAGE_TOKENS, Chunk, StepPlan
from parkway.request import Request

IGNORED = "ignored"
"""What `Planner.sampled` says of a chat that had ended before: nobody wants the result."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the planner has to give. `n_ctx`: most tokens of one chat; one chat alone always fits the pool.

    A step has `batch_tokens` rows, `logit_rows` of them with logits; both suffice for every slot to decode.
    `chunk_tokens` caps one chat's rows. `give_back_every=N` makes each chat give its pages back every N answer tokens.
    `ahead`: steps that may be in flight, their results unknown, while the next is planned. `prefix_cache`: whether a
    chat may share pages that hold the beginning of its tokens.
    """

    slots: int
    pages: int
    n_ctx: int
    batch_tokens: int
    logit_rows: int
    chunk_tokens: int | None = None
    give_back_every: int = 0
    ahead: int = 0
    prefix_cache: bool = True

    def __post_init__(self) -> None:
        assert self.slots >= 1, "there must be a slot"
        assert 2 <= self.n_ctx <= self.pages * PAGE_TOKENS, "one chat must fit the pool alone"
        assert self.batch_tokens >= self.slots, "a step must hold a token of every slot"
        assert self.logit_rows >= self.slots, "a step must hold the logits of every slot"
        assert self.chunk_tokens is None or self.chunk_tokens >= 1, "a chunk must hold a token"
        assert self.give_back_every >= 0, "pages can't be given back every so many tokens"
        assert self.ahead >= 0, "so many steps can't be in flight"


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
        self._arrived: OrderedDict[int, Slot] = OrderedDict()
        self._preempted: deque[Slot] = deque()
        self._running: list[Slot] = []
        self._in_flight: deque[deque[tuple[Chunk, Slot, int]]] = deque()
        """What is left to report of each step, the chat that it is for, wherever that is by now, and its stay."""

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
    def in_flight(self) -> int:
        """Steps whose results have not all been reported."""
        return len(self._in_flight)

    @property
    def idle(self) -> bool:
        """Nobody is here and nothing is in flight."""
        return not self._running and not self.waiting and not self._in_flight

    def arrive(self, request: Request) -> None:
        """Queues a request. Its prompt has a token at least and leaves room for one more."""
        assert 0 < len(request.prompt) < self._limits.n_ctx, f"request {request.id} was not checked"
        self._arrived[request.id] = Slot.waiting(request, self._limits.n_ctx)

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
        """The next step, behind `ahead` at most that are in flight. Empty if nobody is here or all wait for those."""
        assert self.in_flight <= self._limits.ahead, f"results of {self.in_flight} steps are missing"
        step = _Draft(self._limits.batch_tokens, self._limits.logit_rows)
        self._give_back_on_purpose(step)
        self._start()
        self._add_decoders(step)
        self._add_prefills(step)
        chunks = tuple([slot.advance(end) for slot, end in step.ends.items()])
        if chunks:
            stays = [slot.stay for slot in step.ends]
            self._in_flight.append(deque(zip(chunks, step.ends, stays, strict=True)))
        return StepPlan(chunks, tuple(step.given_back))

    def sampled(self, chunk: Chunk, token_id: int | None) -> str | None:
        """Takes the result of the chunk that was planned first of those in flight; None if it does not sample.

        Returns the finish reason if this ended the chat, IGNORED if it had ended before.
        """
        assert chunk.samples == (token_id is not None), f"slot {chunk.slot}: a token is missing or too many"
        slot, stay = self._landed(chunk)
        if slot.ended:
            return IGNORED
        if self._limits.prefix_cache and stay == slot.stay and slot.pages:
            self._seal(slot, chunk.end // PAGE_TOKENS)
        if token_id is not None:
            slot.tokens.append(token_id)
        elif chunk.end < len(slot.tokens):
            return None
        reason = slot.finish_reason
        if reason:
            self._end(slot, State.FINISHED)
        return reason

    def _seal(self, slot: Slot, pages: int) -> None:
        """Names the chat's first pages: their tokens are accepted, and the steps that wrote them have landed."""
        for page in range(slot.sealed, pages):
            self._pool.seal(slot.pages[page], slot.name(page))
        slot.sealed = max(slot.sealed, pages)

    def _landed(self, chunk: Chunk) -> tuple[Slot, int]:
        """The chat that a chunk was planned for, and its stay. Its slot, even its request, may be another's by now."""
        assert self._in_flight, f"slot {chunk.slot}: nothing is in flight"
        step = self._in_flight[0]
        planned, slot, stay = step.popleft()
        in_turn = planned.request is chunk.request and planned.start == chunk.start
        assert in_turn, f"slot {chunk.slot}: a result comes out of turn"
        if not step:
            self._in_flight.popleft()
        return slot, stay

    def _give_back_on_purpose(self, step: _Draft) -> None:
        every = self._limits.give_back_every
        if not every:
            return
        for slot in self._running.copy():
            if slot.state is State.DECODE and not slot.full and slot.answer_tokens % every == 0:
                pages = slot.pages
                self._give_back(slot, step)
                self._pool.forget(pages)  # or it would find them again and compute nothing

    def _start(self) -> None:
        """Starts who fits behind what the running chats will need: given-back chats first, nobody passes the head.

        The head waits for its own tokens in flight, because those are to be computed again with the rest.
        """
        while self._preempted and not self._preempted[0].pending:
            if not self._enter(self._preempted[0]):
                return
            self._preempted.popleft().move(State.REPLAYING)
        while not self._preempted and self._arrived and None in self._slots:
            slot = next(iter(self._arrived.values()))
            if not self._enter(slot):
                return
            del self._arrived[slot.request.id]
            slot.index = self._slots.index(None)
            self._slots[slot.index] = slot

    def _enter(self, slot: Slot) -> bool:
        """Lets a chat run, on pages that hold its first tokens if there are some; False if the rest does not fit.

        A running chat will need the pages of its next token, behind those in flight.
        """
        found = self._found(slot)
        self._pool.share(found)  # first, so that they do not count as free
        needs = sum(pages_for(other.length + 1) - len(other.pages) for other in self._running)
        if pages_for(slot.length + 1) - len(found) + needs > self._pool.free:
            self._pool.give(reversed(found))
            return False
        slot.enter(found)
        self._running.append(slot)
        return True

    def _found(self, slot: Slot) -> tuple[int, ...]:
        """Pages that hold the chat's first tokens; never its last token, whose logits it needs."""
        found: list[int] = []
        if self._limits.prefix_cache and slot.may_share:
            for page in range((slot.length - 1) // PAGE_TOKENS):
                number = self._pool.find(slot.name(page))
                if number is None:
                    break
                found.append(number)
        return tuple(found)

    def _add_decoders(self, step: _Draft) -> None:
        for slot in self._running.copy():  # those that give back on the way have changed their state
            if slot.state is State.DECODE and not slot.full:
                self._add(slot, slot.length, step)

    def _add_prefills(self, step: _Draft) -> None:
        for slot in self._running.copy():
            if slot.state is State.PREFILL or slot.state is State.REPLAYING:
                self._add(slot, self._prefill_end(slot, step), step)

    def _prefill_end(self, slot: Slot, step: _Draft) -> int:
        """Up to which position a chat can prefill with the rows that are left, those with logits and all."""
        most = min(step.tokens_left, self._limits.chunk_tokens or step.tokens_left)
        end = min(slot.length, slot.computed + most)
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
        self._pool.give(reversed(slot.pages))  # of what stays cached, the beginning is to stay longest
        slot.pages = ()

    def _end(self, slot: Slot, state: State) -> None:
        if slot.state is State.PREEMPTED:
            self._preempted.remove(slot)
        else:
            self._leave(slot)
        slot.move(state)
        self._slots[slot.index] = None
        if not self._running and not self.waiting:
            assert not self._pool.used, "somebody left without giving its pages back"
            self._pool.check()
