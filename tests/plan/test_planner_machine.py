"""The planner against the shadows of both pools and a toy model, with everything drawn that can be drawn.

The toy model's next token is a function of the rows that it finds in the shadow pool through the chunk's pages, so KV
that was lost, shared, overwritten or copied too early shows as another answer. In every step the shadows also check
safety (nobody passes who waits for room: shadow_moves.py) and fairness (no wait, parked or new, is longer than the
turns before it: shadow_waits.py); `drain` checks liveness. The planted bugs show that the machine can fail.
"""

from random import Random

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from parkway.plan.limits import FOREVER, Limits
from parkway.plan.step import PAGE_TOKENS
from parkway.request import Request

from .drawn import (
    Clock,
    crowded_limits,
    drawn_clock,
    drawn_limits,
    drawn_request,
    limits_with_branches,
    limits_with_shifts,
    limits_with_states,
    long_limits,
    long_request,
    page_of,
)
from .shadow import Shadow
from .shadow_chat import Chat
from .shadow_copies import Luck

LUCK = st.builds(
    Luck, st.integers(0, 2**32).map(Random), st.sampled_from([True, True, False]), st.sampled_from([0, 0, 0, 0.3])
)


class Machine(RuleBasedStateMachine):
    """What can happen. Those that follow say where it begins."""

    def begin(self, limits: Limits, clock: Clock, crowd: list[Request]) -> None:
        self.shadow = Shadow(limits, clock.seconds)
        self.clock = clock
        self.steps = self.ids = 0
        self.arrive(crowd)

    @rule(requests=st.lists(drawn_request(), min_size=1, max_size=4))
    def arrive(self, requests: list[Request]) -> None:
        for request in requests:
            prompt = request.prompt[: self.shadow.limits.n_ctx - 1]
            self.shadow.arrive(self.asked(msgspec.structs.replace(request, id=self.ids, prompt=prompt)))
            self.ids += 1

    def asked(self, request: Request) -> Request:
        return request

    @precondition(lambda self: self.shadow.open)
    @rule(choice=st.data())
    def cancel(self, choice: st.DataObject) -> None:
        self.shadow.cancel(choice.draw(st.sampled_from(self.shadow.open)))

    @precondition(lambda self: self.shadow.away)
    @rule(choice=st.data())
    def cancel_who_is_out(self, choice: st.DataObject) -> None:
        """In any state, beside any copy."""
        self.shadow.cancel(choice.draw(st.sampled_from(self.shadow.away)))

    @precondition(lambda self: self.shadow.cancelled)
    @rule(choice=st.data())
    def ask_again(self, choice: st.DataObject) -> None:
        """With the id, and even the request, of a chat that was cancelled and may still be in flight."""
        cancelled = self.shadow.cancelled
        self.shadow.arrive(cancelled.pop(choice.draw(st.integers(0, len(cancelled) - 1))).request)

    @precondition(lambda self: self.shadow.finished)
    @rule(choice=st.data(), request=drawn_request())
    def ask_on(self, choice: st.DataObject, request: Request) -> None:
        """Behind an answer, with what was sampled behind its end before that was known."""
        chat = choice.draw(st.sampled_from(self.shadow.finished))
        self.arrive([msgspec.structs.replace(request, prompt=chat.tokens + request.prompt[-20:])])

    @precondition(lambda self: self.shadow.open)
    @rule(steps=st.sampled_from([70, 20, 3, 1]), late=st.integers(0, 2), luck=LUCK)
    def step(self, steps: int, late: int, luck: Luck) -> None:
        self.shadow.copies.luck = luck
        for _ in range(steps):
            self.one(late)

    @precondition(lambda self: self.shadow.running)
    @rule(requests=st.lists(drawn_request(), min_size=1, max_size=2), before=st.sampled_from([0, 4, 12, 63]))
    def arrive_at_the_end_of_a_page(self, requests: list[Request], before: int) -> None:
        """So many tokens before a chat needs a page more, which may be one of theirs."""
        for _ in range(PAGE_TOKENS):
            if any(chat.decodes and (chat.length + before) % PAGE_TOKENS == 0 for chat in self.shadow.running):
                break
            self.one(self.shadow.limits.ahead)
        self.arrive(requests)
        self.one(self.shadow.limits.ahead)

    @precondition(lambda self: self.shadow.open)
    @rule(choice=st.data(), late=st.integers(0, 2))
    def cancel_in_flight(self, choice: st.DataObject, late: int) -> None:
        self.plan()
        if self.shadow.open:
            self.shadow.cancel(choice.draw(st.sampled_from(self.shadow.open)))
        self.land(late)

    @precondition(lambda self: self.shadow.running)
    @rule()
    def ask_again_in_flight(self) -> None:
        self.one(self.shadow.limits.ahead)
        if self.shadow.running:
            chat = self.shadow.running[-1]
            self.shadow.cancel(chat)
            self.shadow.arrive(self.shadow.cancelled.pop().request)
        for _ in range(2):
            self.one(self.shadow.limits.ahead)

    def plan(self) -> int:
        """Plans a step; returns of how many chunks."""
        self.steps += 1
        return len(self.shadow.plan(self.clock.pace(self.steps)).chunks)

    def one(self, late: int) -> None:
        self.land(late if self.plan() else 0)
        self.shadow.land_copies()

    def land(self, late: int) -> None:
        """Reports all but the newest steps, of which the next plan lets at most `ahead` be late."""
        while len(self.shadow.steps.in_flight) > min(late, self.shadow.limits.ahead):
            self.shadow.land()

    @precondition(lambda self: self.shadow.open)
    @rule(luck=LUCK)
    def drain(self, luck: Luck) -> None:
        """With copies that land, somebody computes a row that is new, or one of those that somebody lost."""
        luck.soon = True
        self.shadow.copies.luck = luck
        for chat in self.shadow.open.copy():
            if self.shadow.limits.shifts and chat.request.sampling.max_tokens is None:
                self.shadow.cancel(chat)  # it may go on for ever
        steps_left = sum(self.most_steps(chat) for chat in self.shadow.open)
        while self.shadow.open:
            self.one(self.shadow.limits.ahead)
            steps_left -= 1
            assert steps_left >= 0, "somebody does not get on"
        self.land(0)
        while self.shadow.copies.open:
            self.shadow.land_copies()
        self.shadow.check_drained()

    def most_steps(self, chat: Chat) -> int:
        """Each time that a chat comes in it computes tokens that are new, behind a few steps for copies.

        One whose history must be known gets each token only when the one before has landed.
        """
        limits, tokens, prompt = self.shadow.limits, len(chat.tokens), len(chat.request.prompt)
        answer_tokens = tokens - prompt
        if limits.shifts:
            answer_tokens = chat.request.sampling.max_tokens or 0
            shifts = answer_tokens // PAGE_TOKENS + 1
            tokens = prompt + answer_tokens + shifts * limits.n_ctx
        every, turns = limits.knobs.park_every, limits.quantum < FOREVER
        starts = 2 + (answer_tokens // every if every else 0) + (tokens // 16 if turns else 0)
        each = 1 + limits.ahead * chat.request.sampling.needs_history
        return (tokens * each + limits.ahead + 8) * starts


class PlannerMachine(Machine):
    @initialize(limits=drawn_limits(), clock=drawn_clock(), crowd=st.lists(drawn_request(), min_size=2, max_size=8))
    def come(self, limits: Limits, clock: Clock, crowd: list[Request]) -> None:
        self.begin(limits, clock, crowd)


class CrowdedMachine(Machine):
    """Limits under which rare moments are frequent, and some steps before anything else happens."""

    @initialize(
        limits=crowded_limits(),
        clock=drawn_clock(),
        crowd=st.lists(drawn_request(), min_size=3, max_size=8),
        steps=st.sampled_from([120, 60, 10]),
        luck=LUCK,
    )
    def come(self, limits: Limits, clock: Clock, crowd: list[Request], steps: int, luck: Luck) -> None:
        self.begin(limits, clock, crowd)
        self.step(steps, limits.ahead, luck)


class StatesMachine(Machine):
    """A model with states, under limits where rare moments are frequent."""

    @initialize(
        limits=limits_with_states(),
        clock=drawn_clock(),
        crowd=st.lists(drawn_request(), min_size=3, max_size=8),
        steps=st.sampled_from([120, 60, 10]),
        luck=LUCK,
    )
    def come(self, limits: Limits, clock: Clock, crowd: list[Request], steps: int, luck: Luck) -> None:
        self.begin(limits, clock, crowd)
        self.step(steps, limits.ahead, luck)


class BranchMachine(Machine):
    """A model with states, and chats that begin alike and then part."""

    @initialize(
        limits=limits_with_branches(),
        clock=drawn_clock(),
        crowd=st.lists(drawn_request(), min_size=3, max_size=8),
        steps=st.sampled_from([120, 60, 10]),
        luck=LUCK,
    )
    def come(self, limits: Limits, clock: Clock, crowd: list[Request], steps: int, luck: Luck) -> None:
        self.begin(limits, clock, crowd)
        self.step(steps, limits.ahead, luck)

    def asked(self, request: Request) -> Request:
        """By its number; some are as they were drawn."""
        kinds = ([0, 1], [0, 0], [0, 0, 1], [])[request.id % 4]
        pages = [token_id for kind in kinds for token_id in page_of(kind)]
        return msgspec.structs.replace(request, prompt=pages + request.prompt[-5:] if pages else request.prompt)


class LongMachine(Machine):
    """Few chats with long answers."""

    @initialize(
        limits=long_limits(),
        seconds=st.sampled_from([1.0, 0.25]),
        look_ahead=st.sampled_from([8, 0]),
        crowd=st.lists(long_request(), min_size=3, max_size=6),
        steps=st.sampled_from([250, 100]),
        luck=LUCK,
    )
    def come(
        self, limits: Limits, seconds: float, look_ahead: int, crowd: list[Request], steps: int, luck: Luck
    ) -> None:
        self.begin(limits, Clock(seconds, look_ahead, page_seconds=0, token_seconds=0, switch=0), crowd)
        luck.refused = 0
        self.step(steps, limits.ahead, luck)


class ShiftMachine(Machine):
    """Chats that outgrow their context and go on, some for ever."""

    @initialize(
        limits=limits_with_shifts(),
        clock=drawn_clock(),
        crowd=st.lists(drawn_request(), min_size=2, max_size=6),
        steps=st.sampled_from([250, 120, 10]),
        luck=LUCK,
    )
    def come(self, limits: Limits, clock: Clock, crowd: list[Request], steps: int, luck: Luck) -> None:
        self.begin(limits, clock, crowd)
        self.step(steps, limits.ahead, luck)

    def asked(self, request: Request) -> Request:
        """By its number, so that there are all kinds."""
        how, number = request.sampling, request.id
        most = 400 if how.max_tokens == 90 else how.max_tokens
        keep, discard = (0, -1, 5, 70)[number % 4], (0, 0, 64, 1, 150)[number % 5]
        sampling = msgspec.structs.replace(how, max_tokens=most, n_keep=keep, n_discard=discard)
        return msgspec.structs.replace(
            request, sampling=sampling, stop_ids=request.stop_ids if number % 3 else frozenset()
        )


PlannerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
CrowdedMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
StatesMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
BranchMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
LongMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=10, deadline=None)
ShiftMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestPlanner = PlannerMachine.TestCase
TestCrowd = CrowdedMachine.TestCase
TestStates = StatesMachine.TestCase
TestBranches = BranchMachine.TestCase
TestLong = LongMachine.TestCase
TestShifts = ShiftMachine.TestCase
