"""Decides what each step computes: who starts, decodes, prefills, is parked, comes back. Events in, StepPlan out.

Chats run in the order in which they came into the pool. When they outgrow it together one of them leaves: its pages are
copied to the host, or dropped to be computed again. Whoever waits for room, parked or new, stands in one line.

A step may be planned while others are in flight: their tokens are counted before they are known. A chat that leaves may
have a chunk in flight that still uses its pages. Dropped pages can be handed out at once, because the device runs steps
in their order: whoever takes them writes in a later step, and copies wait for the steps before them. Only within one
step a page has one owner.
"""

from collections import deque

from parkway.plan.chats import Chats
from parkway.plan.copies import Copy
from parkway.plan.draft import Draft
from parkway.plan.limits import Limits, Pace
from parkway.plan.room import Room
from parkway.plan.slot import Slot, State
from parkway.plan.step import PAGE_TOKENS, Chunk, StepPlan
from parkway.report import SlotView
from parkway.request import Notice, Preempt, Request

IGNORED = "ignored"
"""What `Planner.sampled` says of a chat that had ended before: nobody wants the result."""


class Planner:
    """The chats of one pool."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._chats = Chats(limits.slots)
        self._room = Room(limits, self._chats, self._pages_in_flight)
        self._prepared = False
        self._in_flight: deque[deque[tuple[Chunk, Slot]]] = deque()
        """What is left to report of each step, and the chat that it is for, wherever that is by now."""

    @property
    def running(self) -> int:
        return len(self._chats.running)

    @property
    def waiting(self) -> int:
        """Requests that have not started and chats that are out."""
        return len(self._chats.arrived) + len(self._chats.starting) + self.parked

    @property
    def parked(self) -> int:
        """Chats that are out: parked, or on the way out or back."""
        return len(self._chats.out)

    @property
    def parks(self) -> int:
        """How often a chat has left the pool."""
        return self._room.parks

    @property
    def resumes(self) -> int:
        """How often one has come back, and has computed again what it lost."""
        return self._room.resumes

    @property
    def recomputes(self) -> int:
        """How often one has lost what it had computed."""
        return self._room.recomputes

    @property
    def pages_used(self) -> int:
        return self._room.pool.used

    @property
    def host_pages_used(self) -> int:
        return self._room.parking.host.used

    @property
    def in_flight(self) -> int:
        """Steps whose results have not all been reported."""
        return len(self._in_flight)

    @property
    def copying(self) -> int:
        """Copies that have not landed."""
        return self._room.parking.under_way

    @property
    def idle(self) -> bool:
        """Nobody is here and nothing is in flight."""
        return self._chats.nobody and not self._in_flight and not self.copying

    def arrive(self, request: Request) -> None:
        """Queues a request. Its prompt has a token at least and leaves room for one more."""
        assert 0 < len(request.prompt) < self._limits.n_ctx, f"request {request.id} was not checked"
        self._chats.arrive(Slot.waiting(request, self._limits.n_ctx, shifts=self._limits.shifts))

    def cancel(self, request_id: int) -> bool:
        """Ends a request wherever it is; False if it is not here. A result that still comes for it is ignored."""
        if self._chats.withdraw(request_id):
            return True
        slot = self._chats.find(request_id)
        if slot:
            self._room.end(slot, State.CANCELLED)
        return slot is not None

    def release(self, request_id: int) -> None:
        """A chat with a grammar may get its next token: what is allowed there is known. Until the token after that."""
        chats = self._chats
        for slot in (chats.find(request_id), chats.arrived.get(request_id), *chats.starting):
            if slot and slot.request.id == request_id:
                slot.held = False

    def plan(self, pace: Pace) -> StepPlan:
        """The next step, behind `ahead` at most that are in flight. Without chunks if nobody is here or all wait for
        those, or for copies."""
        assert self.in_flight <= self._limits.ahead, f"results of {self.in_flight} steps are missing"
        if not self._prepared:
            self._room.arrange(pace)
        self._prepared = False
        step = Draft(self._limits.batch_tokens, self._limits.logit_rows, self._limits.chunk_tokens)
        self._add_decoders(step)
        self._add_prefills(step)
        chunks = self._advance(step)
        if chunks:
            self._in_flight.append(deque(zip(chunks, step.ends, strict=True)))
        return StepPlan(chunks, self._room.parking.take_planned())

    def prepare(self, pace: Pace) -> tuple[Copy, ...]:
        """The copies of the step that is planned next: whoever is back by then takes part in it."""
        self._room.arrange(pace)
        self._prepared = True
        return self._room.parking.take_planned()

    def landed(self, copy_id: int, now: float) -> None:
        """A copy has been done; its pages are pinned no longer. `now` as in Pace."""
        self._room.landed(copy_id, now)

    def empty_host(self) -> None:
        """Nobody is here: what the host has kept is forgotten, so that its memory can be given back."""
        self._room.parking.empty()

    def refused(self, copy_id: int) -> None:
        """A copy to the host was not begun, for want of memory: whom it was to park is computed again."""
        self._room.refused(copy_id)

    def sampled(self, chunk: Chunk, token_id: int | None) -> str | None:
        """Takes the result of the chunk that was planned first of those in flight; None if it does not sample.

        Returns the finish reason if this ended the chat, IGNORED if it had ended before.
        """
        assert chunk.samples == (token_id is not None), f"slot {chunk.slot}: a token is missing or too many"
        slot = self._landed(chunk)
        if chunk.state_to is not None:
            self._room.checkpoints.landed(slot, chunk.state_to, chunk.end)
        if slot.ended:
            return IGNORED
        if self._limits.prefix_cache and slot.pages:  # nobody comes back before all of its chunks have landed
            self._seal(slot, chunk.end // PAGE_TOKENS)
        if token_id is not None:
            slot.tokens.append(token_id)
        reason = slot.finish_reason if token_id is not None or chunk.end == len(slot.tokens) else None
        if reason:
            self._room.end(slot, State.FINISHED)
        elif slot.outgrown:
            self._room.shift(slot)
        else:
            self._room.announce(slot)
        return reason

    def take_notices(self) -> list[tuple[int, Notice]]:
        """What clients are to be told now, each with its request's id. Behind `sampled` it follows that token."""
        return self._room.notices.take()

    def why_parked(self, request_id: int) -> str:
        """The last time, for the log."""
        slot = self._chats.find(request_id)
        return slot.why if slot else "gone since"

    def take_failed(self) -> list[int]:
        """Requests that were ended since this was last asked: the pool is full, and nobody may be parked."""
        failed, self._room.failed = self._room.failed, []
        return failed

    def take_record(self, request_id: int) -> Preempt:
        """What parks there were of a request that has ended."""
        return self._room.records.pop(request_id, Preempt())

    def tokens(self, slot: int) -> list[int]:
        """Prompt and answer of the chat in a slot, as far as they are known and not shed."""
        chat = self._chats.slots[slot]
        assert chat, f"slot {slot} is nobody's"
        return chat.tokens

    @property
    def states(self) -> list[str]:
        """Of every slot."""
        return ["idle" if slot is None else slot.state.value for slot in self._chats.slots]

    def slots(self) -> list[SlotView]:
        """Every slot as it is now."""
        return [SlotView(index) if slot is None else slot.view for index, slot in enumerate(self._chats.slots)]

    def _seal(self, slot: Slot, pages: int) -> None:
        """Names the chat's first pages: their tokens are accepted, and the steps that wrote them have landed."""
        for page in range(slot.sealed, pages):
            self._room.pool.seal(slot.pages[page], slot.name(page), slot.before(page))
        slot.sealed = max(slot.sealed, pages)

    def _pages_in_flight(self) -> frozenset[int]:
        return frozenset(page for step in self._in_flight for chunk, _ in step for page in chunk.pages)

    def _landed(self, chunk: Chunk) -> Slot:
        """The chat that a chunk was planned for. Its slot, even its request, may be another's by now."""
        assert self._in_flight, f"slot {chunk.slot}: nothing is in flight"
        step = self._in_flight[0]
        planned, slot = step.popleft()
        in_turn = planned.request is chunk.request and planned.start == chunk.start
        assert in_turn, f"slot {chunk.slot}: a result comes out of turn"
        slot.flying -= 1
        if not step:
            self._in_flight.popleft()
        return slot

    def _add_decoders(self, step: Draft) -> None:
        decode = State.DECODE  # once: to look it up takes as long as all else that is asked of a chat
        for slot in self._chats.running.copy():  # those that make room on the way have changed their state
            ready = slot.state is decode and not (slot.full or slot.awaits_token)
            if ready and self._has_pages(slot, slot.length, step):
                step.decode(slot)

    def _add_prefills(self, step: Draft) -> None:
        states = State.PREFILL, State.REPLAYING
        for slot in self._chats.running.copy():
            if slot.state in states:
                end = self._room.checkpoints.cut(slot, step.prefill_end(slot))
                if end > slot.computed and self._has_pages(slot, end, step):
                    step.prefill(slot, end)

    def _has_pages(self, slot: Slot, end: int, step: Draft) -> bool:
        """Takes pages for a chat's rows up to `end`; without them it waits for those that are on their way."""
        while not self._room.take(slot, end):
            gone = self._room.give_way(slot)
            for each in gone:
                step.remove(each)
            if not gone or slot in gone:
                return False
        return True

    def _advance(self, step: Draft) -> tuple[Chunk, ...]:
        replaying = [slot for slot in step.ends if slot.replayed]
        advanced = self._advanced if self._room.checkpoints.needed else Slot.advance
        chunks = tuple([advanced(slot, end) for slot, end in step.ends.items()])
        for slot in replaying:
            if slot.state is not State.REPLAYING:
                self._room.caught_up(slot)
        return chunks

    def _advanced(self, slot: Slot, end: int) -> Chunk:
        """With the checkpoint that it begins at, and the one that it leaves."""
        checkpoints = self._room.checkpoints
        chunk = slot.advance(end, checkpoints.begin(slot, end))
        checkpoints.leave(slot)
        return chunk
