"""Who has room in the pool: who leaves it, who comes back, who starts. Moves chats and pages; plans no rows."""

from collections.abc import Callable, Set

from msgspec.structs import replace

from parkway.plan.budget import RUNWAY, demand, reach
from parkway.plan.chats import Chats
from parkway.plan.checkpoints import Checkpoints
from parkway.plan.limits import Limits, Pace
from parkway.plan.notices import Notices
from parkway.plan.pages import PagePool, pages_for
from parkway.plan.parking import Parking
from parkway.plan.sharing import Sharing
from parkway.plan.shift import shed
from parkway.plan.slot import Slot, State, Why
from parkway.plan.step import PAGE_TOKENS
from parkway.plan.victims import comes_behind, in_turn, line, victim
from parkway.request import Preempt

BESIDE = 4.0
"""A second of computing again, which stops all others, is worth so many of copying, which goes on beside them."""
TIGHT = 0.25
"""Share of the pool that is left when pages are saved ahead."""


class Room:
    """The pool, shared out. `parks`, `resumes` and `recomputes` count departures, returns, and parks without a copy."""

    def __init__(self, limits: Limits, chats: Chats, in_flight: Callable[[], Set[int]]) -> None:
        """`in_flight` tells the pages that launched steps use."""
        self.pool = PagePool(limits.pages)
        self.parking = Parking(self.pool, limits.host_pages, named=limits.prefix_cache, forget=limits.knobs.forget)
        self.checkpoints = Checkpoints(limits.checkpoints if limits.prefix_cache else None, limits.interval)
        self._sharing = Sharing(self.pool, self.checkpoints, named=limits.prefix_cache and limits.checkpoints != 0)
        self.notices = Notices()
        self.pace = Pace()
        self.parks = self.resumes = self.recomputes = 0
        self.failed: list[int] = []
        """Requests that were ended because the pool is full, by a planner that may not park."""
        self.records: dict[int, Preempt] = {}
        """Of requests that have ended; whoever tells their end takes it."""
        self._limits = limits
        self._chats = chats
        self._in_flight = in_flight
        self._tight = False
        self._next: Slot | None = None
        """Who will be parked first."""

    def arrange(self, pace: Pace) -> None:
        """Everything about room that precedes a step."""
        self.pace = pace
        self._chats.admit(pace.now)
        if self._limits.parks:
            self._park_on_purpose()
            self._make_room()
            self._take_turns()
        self._let_in()
        self._save_ahead()

    def landed(self, copy_id: int, now: float) -> None:
        """The copy has been done."""
        self.pace = replace(self.pace, now=now)
        slot = self.parking.landed(copy_id)
        if slot and slot.state is not State.PREEMPTED:
            self._returned(slot)

    def refused(self, copy_id: int) -> None:
        """The copy could not be begun, because the host has no memory for it."""
        slot = self.parking.refused(copy_id)
        if slot:
            self._dropped(slot)

    def take(self, slot: Slot, end: int) -> bool:
        """Takes what the chat misses up to position `end`, which may have to wait for pages that are on their way."""
        if end <= len(slot.pages) * PAGE_TOKENS:
            return True
        pages = self.pool.take(pages_for(end) - len(slot.pages))
        if pages is None:
            return False
        slot.pages += pages
        return True

    def give_way(self, asking: Slot) -> list[Slot]:
        """The last resort: who drops pages, the one that asks among them, so that others get some. Nobody while pages
        are on their way."""
        if not self._limits.parks:
            return self._fail()
        if self.parking.under_way:
            return []
        holders = [slot for slot in self._chats.running if slot.pages or slot is asking]
        chosen = self._victim(holders, missing=1, tokens=0)
        if chosen is None:
            return []
        self._leave(chosen, "no page is left")
        self._drop(chosen)
        self.announce(chosen)
        return [chosen]

    def announce(self, slot: Slot) -> None:
        """Tells that a chat is out as soon as its last token has been told."""
        if not slot.announced and not slot.flying and slot.state in (State.PREEMPTING, State.PREEMPTED):
            self.notices.left(slot, ahead=line(self._chats.out, self._limits).index(slot))

    def caught_up(self, slot: Slot) -> None:
        """A chat that was dropped has computed again what it had."""
        self.resumes += 1
        slot.entered_at = slot.computed  # its turn is counted in new tokens
        self.notices.returned(slot, self.pace.now)

    def shift(self, slot: Slot) -> None:
        """The chat has outgrown its context: it goes on with fewer tokens, behind pages that hold the first of them."""
        self.parking.shifted(slot)
        slot.shift(shed(slot.request, slot.length))
        found, before = self._found(slot), slot.pages
        self.pool.share(found)
        slot.begin_again(tuple(found))
        self.pool.give(reversed(before))
        self._sharing.enter(slot)

    def end(self, slot: Slot, state: State) -> None:
        """The chat goes, whatever its state; copies under way keep their pages until they land."""
        self.parking.give_up(slot)
        self.checkpoints.leave(slot)
        self._chats.end(slot)
        slot.move(state)
        parked = slot.parked_seconds + (self.pace.now - slot.since if slot.announced else 0.0)
        self.records[slot.request.id] = Preempt(slot.parks, slot.recomputes, round(1000 * parked))
        if self._chats.nobody and not self.parking.under_way:
            assert not self.pool.used, "somebody left without giving pages back"
            assert not self.parking.host.used, "somebody left without giving the host's pages back"
            self.pool.check()
            self.checkpoints.check()
            self.parking.host.check()

    def _park_on_purpose(self) -> None:
        every = self._limits.knobs.park_every
        if every:
            for slot in self._chats.running.copy():
                due = slot.answer_tokens >= (slot.parks + 1) * every
                if due and slot.state is State.DECODE and not slot.full and slot is not self._exempt:
                    self._park(slot, "a test knob")

    def _make_room(self) -> None:
        """Parks before the step that would not fit; while pages are on their way, only for what they do not cover."""
        if not self._limits.knobs.look_ahead:
            return
        tokens = self.pace.look_ahead
        while (missing := demand(self._chats.resident, tokens) - self.pool.free - self.parking.coming) > 0:
            chosen = self._victim(self._chats.running, missing=missing, tokens=tokens)
            if chosen is None:
                break
            self._park(chosen, "no room")
        self._tight = missing > -TIGHT * self._limits.pages

    def _take_turns(self) -> None:
        """Once the head of the line has waited for a quantum, who has stayed for one makes room for it."""
        limits, pace = self._limits, self.pace
        head = next(filter(self._ready, self._line()), None)
        if head is None or self.parking.coming or pace.now - head.since < limits.quantum:
            return
        missing = self._needs(head, self._found(head)) - self.pool.free
        if missing <= 0:
            return
        others = [slot for slot in self._chats.running if comes_behind(slot, head, limits, pace.now)]
        quantum, tokens = max(limits.quantum, 4 * pace.switch), self._runway
        chosen = in_turn(others, self.pool, pace, quantum, exempt=self._exempt, missing=missing, tokens=tokens)
        if chosen:
            self._park(chosen, "its turn is over")

    def _let_in(self) -> None:
        """Who waits comes in, the head of the line first. Nobody passes one for whom there is no room; for one that
        can't come yet its pages are kept. In "pass" a parked chat that fits passes both."""
        behind = 0
        for slot in self._line():
            passes, ready = self._limits.resume == "pass" and slot.parks, self._ready(slot)
            if ready and self._comes_in(slot, behind=0 if passes else behind):
                continue
            if ready and not passes:
                return
            behind = behind or reach(slot, self._runway)

    def _line(self) -> list[Slot]:
        waiting = self._chats.waiting
        return line(waiting, self._limits) if waiting else waiting

    def _ready(self, slot: Slot) -> bool:
        """Not while a copy or a token of its own is on the way, or another computes the page that it misses first."""
        if slot.stay:
            return slot.state is State.PREEMPTED and not slot.flying
        return not self._sharing.sibling_computes(slot, self._chats.running)

    def _comes_in(self, slot: Slot, *, behind: int) -> bool:
        """Lets a chat in if there is room for it and what the others will need meanwhile, and `behind` pages more."""
        found = self._found(slot)
        if self._needs(slot, found, behind=behind) > self.pool.free:
            return False
        if slot.host:
            self.parking.come_back(slot, self._in_flight())
            if slot.state is not State.RESTORING:
                self._returned(slot)
            return True
        self.pool.share(found)
        slot.enter(tuple(found), self.pace.now)
        self._sharing.enter(slot)
        if slot.index < 0:
            self._chats.start(slot)
        else:
            self._chats.come_back(slot)
            slot.move(slot.returns_to)
            if slot.state is not State.REPLAYING:
                self.caught_up(slot)
        return True

    def _returned(self, slot: Slot) -> None:
        """A chat has its pages back; if it was parked while it computed again what it had, it is still out."""
        self._chats.come_back(slot)
        slot.begin_stay(self.pace.now)
        if slot.state is not State.REPLAYING:
            self.caught_up(slot)

    def _needs(self, slot: Slot, found: list[int], *, behind: int = 0) -> int:
        """Pages that must be free for a chat to come in behind those that it finds, and stay for a while beside the
        others; alone it need not be for a while."""
        others = self._chats.resident
        tokens = self._runway if others or behind else 0
        return reach(slot, tokens) - self.pool.held(found) + demand(others, tokens) + behind

    def _found(self, slot: Slot) -> list[int]:
        """Pages of the pool that hold what a chat has computed, or the first tokens of one that begins anew."""
        if slot.host:
            return [page for page in self.parking.found(slot) if page is not None]
        return self._sharing.found(slot)

    @property
    def _exempt(self) -> Slot | None:
        return self._chats.first if self._limits.knobs.exempt_first else None

    @property
    def _runway(self) -> int:
        """Tokens for which whoever comes in has room at least."""
        return max(self.pace.look_ahead, RUNWAY)

    def _victim(self, running: list[Slot], *, missing: int, tokens: int) -> Slot | None:
        knobs, misses = self._limits.knobs, self.parking.misses
        return victim(
            running, self.pool, self.pace, knobs, exempt=self._exempt, missing=missing, tokens=tokens, misses=misses
        )

    def _park(self, slot: Slot, why: Why) -> None:
        """By a copy, unless there is no room for it or computing again takes less time."""
        self._leave(slot, why)
        if not (self._copies_faster(slot) and self.parking.leave(slot)):
            self._drop(slot)
        self.announce(slot)

    def _copies_faster(self, slot: Slot) -> bool:
        pages = self.parking.misses(slot) + len(slot.pages)
        again = slot.computed * self.pace.token_seconds
        return pages * self.pace.page_seconds <= BESIDE * again or not self.pace.token_seconds

    def _leave(self, slot: Slot, why: Why) -> None:
        """A chat computes no longer. One that was still computing again what it had is not parked anew."""
        self._chats.leave(slot)
        if not slot.announced:
            self.parks += 1
            slot.parks += 1
            slot.since, slot.why = self.pace.now, why

    def _drop(self, slot: Slot) -> None:
        self.parking.drop(slot)
        self._dropped(slot)

    def _dropped(self, slot: Slot) -> None:
        before = slot.recomputes
        self.checkpoints.leave(slot)
        slot.drop()
        self.recomputes += slot.recomputes - before
        slot.move(State.PREEMPTED)

    def _fail(self) -> list[Slot]:
        """Ends everybody who runs."""
        running = self._chats.running.copy()
        for slot in running:
            self.failed.append(slot.request.id)
            self.end(slot, State.CANCELLED)
        return running

    def _save_ahead(self) -> None:
        """Once the pool is nearly full, and the chats will outgrow it before they end: copies sealed pages of the one
        that will be parked first, so that its park is short."""
        limits, parking, chats = self._limits, self.parking, self._chats
        if not (self._tight and limits.host_pages and limits.prefix_cache) or parking.saving:
            return
        if demand(chats.resident, limits.n_ctx) <= self.pool.free:
            return
        if self._next not in chats.running:
            self._next = self._victim(chats.running, missing=1, tokens=self.pace.look_ahead)
        if self._next and self._next.saved < self._next.sealed:
            parking.save_ahead(self._next)
