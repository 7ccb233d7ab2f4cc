"""What the planner's steps must look like: a shadow of everybody, over those of both pools, copies and answers.

The shadow runs a step as soon as it is planned, as a device runs it after all that were planned before; what it sampled
is reported when the machine says so.
"""

from parkway.plan.limits import Limits, Pace
from parkway.plan.pages import pages_for
from parkway.plan.planner import IGNORED, Planner
from parkway.plan.slot import Slot
from parkway.plan.step import PAGE_TOKENS, Chunk, StepPlan
from parkway.request import Request

from .shadow_chat import Chat, find
from .shadow_copies import ShadowCopies
from .shadow_moves import Moves
from .shadow_notices import check_told, hear
from .shadow_pool import ShadowPool
from .shadow_queue import Queue
from .shadow_states import ShadowStates
from .shadow_steps import ShadowSteps, owner
from .shadow_waits import Waits


class Shadow:
    """Follows a planner from outside and asserts, step by step, that it keeps its promises."""

    def __init__(self, limits: Limits, seconds: float = 1.0) -> None:
        self.limits = limits
        self.planner = Planner(limits)
        parking = self.planner._room.parking
        self.device = ShadowPool(limits.pages, self.planner._room.pool)
        self.host = ShadowPool(limits.host_pages, parking.host)
        self.device.watch(self.planner._chats)
        self.copies = ShadowCopies(self.device, self.host)
        self.arrived: list[Chat] = []
        self.queue = Queue(limits.slots, self.arrived)
        self.inside: list[Chat] = []
        self.running: list[Chat] = []
        self.cancelled: list[Chat] = []
        self.finished: list[Chat] = []
        self.exempt: Chat | None = None
        self.pace = Pace()
        self.parks = self.ended_away = 0
        self.waits = Waits(limits, seconds)
        self.states = ShadowStates(limits, self.planner._room.checkpoints)
        self.steps = ShadowSteps(limits, self.device, self.states)

    @property
    def open(self) -> list[Chat]:
        return self.arrived + self.inside

    @property
    def _copies(self) -> bool:
        """Whether there is room on the host for everybody, and copies cost nothing."""
        limits = self.limits
        room = limits.host_pages > 2 * limits.pages + limits.slots * pages_for(limits.n_ctx)
        return room and limits.knobs.look_ahead and not self.pace.token_seconds

    @property
    def new(self) -> list[Chat]:
        """Those that wait for room and not for a slot."""
        return self.queue.new

    @property
    def away(self) -> list[Chat]:
        return [chat for chat in self.inside if chat.away]

    def slot(self, chat: Chat) -> Slot:
        slot = self.planner._chats.slots[chat.view.id]
        assert slot is not None
        return slot

    def arrive(self, request: Request) -> None:
        self.arrived.append(Chat.alone(request, self.limits))
        self.planner.arrive(request)

    def cancel(self, chat: Chat) -> None:
        assert self.planner.cancel(chat.request.id)
        assert not self.planner.cancel(chat.request.id)
        self._remove(chat)
        self.cancelled.append(chat)
        self._check()

    def plan(self, pace: Pace) -> StepPlan:
        self.pace = pace
        self.queue.admit(self.inside, pace.now)
        self.waits.admit(self.new, self.away, pace.now)
        self.states.look()
        moves = self._moves()
        prepares = self.steps.in_flight and self.planner.parked and self.copies.luck.random.random() < 0.3
        prepared = self.planner.prepare(pace) if prepares else ()
        line = [chat.request.id for chat in self.new]
        plan = self.planner.plan(pace)
        assert not {slot.request.id for slot in self.planner._chats.starting} - set(line), "not whose turn it was"
        plan = StepPlan(plan.chunks, prepared + plan.copies)
        failed = self.planner.take_failed()
        self._fail(failed, moves)
        self.steps.check_settled(plan.copies)
        self.copies.submit(plan.copies)
        self._follow(moves)
        hear(self.planner.take_notices(), self.inside, pace.now)
        chats = [owner(self.inside, chunk) for chunk in plan.chunks]
        if not failed:  # whose pages came too late for others
            self._check_room(moves)
        self._check_steps(chats, plan, moves)
        self.steps.run(chats, plan)
        self._refresh()
        assert all(chat.view.computed == chat.computed for chat in self.inside)
        waits = self.steps.in_flight or self.copies.open or failed or not self.open
        assert plan.chunks or waits, "nothing to compute and nothing to wait for"
        for copy_id in self.copies.refuse_some(plan.copies):
            self.waits.bounded = False
            self.planner.refused(copy_id)
            self._refresh()
        self._check()
        return plan

    def land(self) -> None:
        """Reports the oldest step in flight."""
        for chunk, chat, token_id in self.steps.land():
            self._report(chunk, chat, token_id)
            self._hear()
        self._check_counters()

    def land_copies(self) -> None:
        """Copies go on, and some land."""
        for each in self.copies.chosen_to_land():
            self.copies.land(each)
            self.planner.landed(each.copy.id, self.pace.now)
            self._check()
        if not self.copies.luck.soon:
            for chat in self.open:
                chat.clean = self.pace.now

    def check_drained(self) -> None:
        assert self.planner.idle
        assert self.planner.pages_used == self.host.pool.used == 0

    def _moves(self) -> Moves:
        """The planner's own pages are asked for: those of a chat that found some show in no chunk yet."""
        limits = self.limits
        due = [chat for chat in self.running if chat is not self.exempt and chat.due(limits)]
        resident = [chat for chat in self.inside if chat.runs or chat.view.state == "restoring"]
        return Moves(
            limits=limits,
            pace=self.pace,
            running=self.running.copy(),
            resident=resident,
            parked=[chat for chat in self.inside if chat.may_return],
            new=self.new,
            pages={chat: self.slot(chat).pages for chat in resident},
            due=due,
            exempt=self.exempt,
            parks={chat: chat.view.parks for chat in self.inside},
            found=self._found,
            next_place=self._next_place,
            held=self.device.held,
        )

    def _fail(self, failed: list[int], moves: Moves) -> None:
        """Whoever ran when the pool was full, those who had just started among them."""
        if not failed:
            return
        assert not self.limits.parks, "somebody failed who could have been parked"
        starts = [chat for chat in self.arrived if chat.request.id in failed]
        chats = self.running + starts
        assert failed == [chat.request.id for chat in chats], "not those who ran were ended"
        assert sum([chat.reach(0) for chat in chats]) > self.limits.pages, "there was room"
        for chat in chats:
            self._remove(chat)
        moves.new = [chat for chat in moves.new if not chat.ended]

    def _follow(self, moves: Moves) -> None:
        views = {view.request_id: view for view in self.planner.slots()}
        moves.started = [chat for chat in self.arrived if chat.request.id in views]
        assert set(moves.started) <= set(moves.new), "not whose turn it was"
        if self.limits.knobs.exempt_first and moves.started:
            self.exempt = self.exempt or min(moves.started, key=lambda chat: chat.place(self.limits.resume))
        for chat in moves.started:
            self.arrived.remove(chat)
            self.inside.append(chat)
            moves.new.remove(chat)
            moves.parks[chat] = 0
        before = {chat: chat.view for chat in self.inside}
        was_out = [chat for chat in self.inside if chat.out and chat.view.state != "restoring"]
        was_running = [chat for chat in self.inside if chat.runs]
        self._refresh()
        for chat, view in before.items():
            again = chat.view.parks > view.parks or chat.view.recomputes > view.recomputes
            if chat in was_running and (again or not chat.runs):
                moves.left.append(chat)
                assert chat.view.recomputes == view.recomputes or not self._copies, (
                    "dropped, and could have been copied"
                )
            if (chat in was_out or chat in moves.left) and (chat.runs or chat.view.state == "restoring"):
                moves.returned.append(chat)
            if chat.runs and not chat.computed and (again or chat not in was_running):
                self._enter(chat, first=chat in moves.started)
            ends_known = chat.answer_tokens > 0 and chat.computed >= chat.length - 1
            if chat.runs and (ends_known if chat in moves.returned else view.state == "decode"):
                moves.decoders.append(chat)
        moves.copying = bool(self.copies.open)

    def _enter(self, chat: Chat, *, first: bool) -> None:
        """It computes behind what it finds."""
        chat.computed = PAGE_TOKENS * len(self._found(chat))
        chat.branch = self.states.branch(chat, self.device.sights[chat.request.id])
        assert chat.computed < chat.length, "the last token is to be computed"
        chat.dropped = chat.dropped and chat.computed < chat.lost
        if first:
            chat.cached = chat.computed

    def _refresh(self) -> None:
        """Looks at everybody after something has happened."""
        views = {view.request_id: view for view in self.planner.slots()}
        for chat in self.inside:
            view, ran, out = views[chat.request.id], chat.runs, chat.out
            if view.recomputes > chat.view.recomputes or (view.state == "preempted" and not view.computed):
                chat.dropped = chat.dropped or chat.computed > 0
                chat.lost, chat.computed = max(chat.lost if chat.dropped else 0, chat.computed), 0
            if view.parks > chat.view.parks:
                self.parks += view.parks - chat.view.parks
                self.waits.begin(chat, self.away + self.new, self.pace.now)
            assert view.recomputes <= view.parks, "a park lost rows twice"
            chat.view = view
            if chat.runs and (out or not ran):
                chat.entered = self.pace.now
        order = self.planner._chats.running
        self.running = [found for slot in order if (found := find(self.inside, slot.request.id))]
        assert len(order) == len(self.running) == sum(chat.runs for chat in self.inside) == self.planner.running

    def _found(self, chat: Chat) -> list[int]:
        """Of one that is copied back it is not asked: the host's pages tell what it finds."""
        if chat.computed or not self.limits.prefix_cache:
            return []
        return self.states.reached(chat, self.device.found(chat))

    def _next_place(self, chat: Chat, tokens: int) -> float:
        """Behind so many tokens, the next end of a page of this chat at which others can begin."""
        return self.states.next_place(chat, tokens) if self.states.needed else tokens + PAGE_TOKENS

    def _check_room(self, moves: Moves) -> None:
        held = {chat: self.slot(chat).pages for chat in self.inside if chat.runs or chat.view.state == "restoring"}
        moves.check(self.device.pool.free, held)

    def _check_steps(self, chats: list[Chat], plan: StepPlan, moves: Moves) -> None:
        decoders = [chat for chat in self.running if chat in moves.decoders]
        others = [chat for chat in self.running if chat not in decoders]
        assert chats == [chat for chat in decoders + others if chat in chats], "not decoders first, each kind in turn"
        if not moves.left or self.limits.knobs.look_ahead:  # or rows were left over by who lost its pages
            able = [chat for chat in decoders + others if not (chat.full or chat.awaits_token)]
            waiting = [chat for chat in able if chat.computed < chat.length]
            late = {chat for chat in waiting if self.copies.open and chat not in chats}
            self.steps.check_rows(waiting, plan, may_wait={c: len(self.slot(c).pages) for c in late})

    def _report(self, chunk: Chunk, chat: Chat, token_id: int | None) -> None:
        chat.flying -= 1
        reason = self.planner.sampled(chunk, token_id)
        if chat.ended:
            assert reason is IGNORED, "a chat that had ended took a result"
            return
        if token_id is not None:
            assert token_id == chat.tokens[chat.known], "not the answer that the chat gets alone"
            assert not chat.told, "a token behind preempted"
            chat.known += 1
        done = chat.known == chat.end <= chunk.end + chunk.samples
        assert reason == (chat.reason if done else None)
        if done and reason:
            assert not chat.owed, "a log-probability of the prompt never came"
            self._remove(chat)
            self.finished.append(chat)
        elif not chat.out:
            self.device.check_sealed(chat, chunk, prefix_cache=self.limits.prefix_cache)
            if done:
                self._shift(chat)

    def _shift(self, chat: Chat) -> None:
        """It goes on behind what it finds of fewer tokens, and nobody is told."""
        assert not chat.flying, "shifted while a token is in flight"
        self.states.look()
        chat.begin_stretch()
        chat.computed = PAGE_TOKENS * len(self._found(chat))
        chat.branch = self.states.branch(chat, self.device.sight())
        view = self.slot(chat).view
        assert view.tokens == chat.shed + chat.known, "not the tokens that a shift leaves"
        assert view.state == ("decode" if chat.computed == chat.known - 1 else "prefill")

    def _remove(self, chat: Chat) -> None:
        if chat in self.arrived:
            self.arrived.remove(chat)
        else:
            self.inside.remove(chat)
            self.ended_away += chat.away
            record = self.planner.take_record(chat.request.id)
            assert record.parks == chat.view.parks
            assert record.recomputes == chat.view.recomputes
        if chat in self.running:
            self.running.remove(chat)
        chat.ended = True

    def _check(self) -> None:
        """What is true at every moment."""
        self._hear()
        slots = [self.slot(chat) for chat in self.inside]
        self.copies.check_books(slots)
        in_flight = [chunk for step in self.steps.in_flight for chunk, _, _ in step]
        self.states.check_books(slots, in_flight, self.steps.landed)
        if not self.planner.recomputes:
            self.waits.check(self.away + self.new, self.pace)
        self._check_counters()

    def _check_counters(self) -> None:
        planner = self.planner
        assert planner.in_flight == len(self.steps.in_flight)
        assert planner.copying == len(self.copies.open)
        assert planner.parked == sum(chat.out for chat in self.inside)
        assert planner.waiting == len(self.arrived) + planner.parked
        assert planner.parks == self.parks
        assert planner.parks - planner.resumes == len(self.away) + self.ended_away
        assert planner.idle == (not self.open and not self.steps.in_flight and not self.copies.open)
        assert self.open or self.copies.open or not planner.pages_used
        for pool in (self.device, self.host):
            pool.check_named(self.steps.landed)

    def _hear(self) -> None:
        self._refresh()
        hear(self.planner.take_notices(), self.inside, self.pace.now)
        check_told(self.inside)
