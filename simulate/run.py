"""One run: the real planner, told the time by a simulated clock, until every chat has its answer."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from parkway.engine.tallies import Pacer
from parkway.plan.copies import Copy, Owner
from parkway.plan.limits import Limits
from parkway.plan.planner import IGNORED, Planner
from parkway.plan.step import Chunk
from parkway.report import View
from parkway.request import Request, SamplingParams
from simulate.costs import Costs
from simulate.device import Device
from simulate.traffic import Chat

WORD, END = 2, 1
"""The token that an answer repeats, and the one that ends it, which the planner cannot foresee."""
VIEW_SECONDS = 0.1
"""As an engine's."""

Watch = Callable[[View], None]


@dataclass(slots=True)
class Outcome:
    """`seconds` from the first arrival to the last token. `parked`: seconds of every wait between what a client is
    told: that its chat is parked, and that it goes on. `starts`: seconds from each chat's arrival to its first step.

    `slowdowns`: of each, its time in the system over its time alone. `tokens`: of all answers.
    """

    seconds: float = 0.0
    parked: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    slowdowns: list[float] = field(default_factory=list)
    parks: int = 0
    recomputes: int = 0
    tokens: int = 0
    steps: int = 0

    @property
    def longest_wait(self) -> float:
        """Seconds, for room: of a chat that is parked or has not started."""
        return max(self.parked + self.starts)

    @property
    def longest_park(self) -> float:
        return max(self.parked, default=0.0)

    @property
    def latest_start(self) -> float:
        return max(self.starts)

    @property
    def slowdown(self) -> float:
        return sum(self.slowdowns) / len(self.slowdowns)


def run(chats: Sequence[Chat], costs: Costs, limits: Limits, watch: Watch | None = None) -> Outcome:
    """Serves these chats, sorted by arrival. `watch` gets what an engine's views would show. Raises ValueError for a
    chat that is longer than the context."""
    for number, chat in enumerate(chats):
        if chat.prompt + chat.answer > limits.n_ctx:
            raise ValueError(f"chat {number} does not fit a context of {limits.n_ctx}")
    return _Run(chats, costs, limits, watch).outcome()


class _Run:
    def __init__(self, chats: Sequence[Chat], costs: Costs, limits: Limits, watch: Watch | None) -> None:
        self._chats = chats
        self._costs = costs
        self._ahead = limits.ahead
        self._watch = watch
        self._planner = Planner(limits)
        self._pacer = Pacer()
        self._device = Device(costs)
        self._begun: dict[int, float] = {}
        self._coming = deque(enumerate(chats))
        self._now = chats[0].at
        self._launched = deque[float]()
        self._landed = 0.0
        self._started: set[int] = set()
        self._left: dict[int, float] = {}
        self._states: list[str] = []
        self._viewed = 0.0
        self._outcome = Outcome()

    def outcome(self) -> Outcome:
        while self._coming or not self._planner.idle:
            self._arrive()
            self._turn()
        outcome, planner = self._outcome, self._planner
        outcome.parks, outcome.recomputes = planner.parks, planner.recomputes
        return outcome

    def _arrive(self) -> None:
        while self._coming and self._coming[0][1].at <= self._now:
            number, chat = self._coming.popleft()
            sampling = SamplingParams(temperature=0)
            prompt = [number + END + WORD] * chat.prompt
            self._planner.arrive(
                Request(id=number, prompt=prompt, sampling=sampling, seed=0, stop_ids=frozenset({END}))
            )

    def _turn(self) -> None:
        """What the engine's loop does in one turn."""
        planner, device = self._planner, self._device
        if self._begun:
            self._settle(device.landed(self._now))
        plan = planner.plan(self._pacer.pace(self._now))
        if plan.copies:
            self._begin(plan.copies)
        self._note_waits()
        if plan.chunks:
            self._launch(plan.chunks)
        elif not planner.in_flight:
            self._sleep()
        for _ in range(planner.in_flight - (self._ahead if plan.chunks else 0)):
            end, chunks = device.land()
            self._now = max(self._now, end)
            began = max(self._launched.popleft(), self._landed)
            self._pacer.stepped(self._now - began, sum([len(chunk.tokens) for chunk in chunks]))
            self._landed = self._now
            for chunk in chunks:
                self._land(chunk)
        self._note_waits()
        if self._watch:
            self._show(self._watch)

    def _launch(self, chunks: tuple[Chunk, ...]) -> None:
        self._device.launch(chunks, self._now)
        self._outcome.steps += 1
        for chunk in chunks:
            if not chunk.start and chunk.request.id not in self._started:
                self._started.add(chunk.request.id)
                self._outcome.starts.append(self._now - self._chats[chunk.request.id].at)
        self._launched.append(self._now)

    def _sleep(self) -> None:
        """Until a copy lands or somebody arrives: there is nothing to compute."""
        times = [self._device.next_landing()] if self._begun else []
        if self._coming:
            times.append(self._coming[0][1].at)
        if times:
            self._now = max(self._now, min(times))
        elif not self._planner.idle:
            raise RuntimeError("the planner has no step for chats that are here")

    def _begin(self, copies: tuple[Copy, ...]) -> None:
        self._device.submit(copies, self._now)
        for copy in copies:
            self._begun[copy.id] = self._now

    def _settle(self, copies: list[Copy]) -> None:
        for copy in copies:
            seconds = self._now - self._begun.pop(copy.id)
            self._planner.landed(copy.id, self._now)
            if copy.owner is not Owner.SAVE_AHEAD:
                self._pacer.copied(seconds, len(copy.sources), to_host=copy.to_host)

    def _land(self, chunk: Chunk) -> None:
        chat = self._chats[chunk.request.id]
        token = None
        if chunk.samples:
            token = END if chunk.end == chat.prompt + chat.answer - 1 else WORD
        reason = self._planner.sampled(chunk, token)
        if token is not None and reason is not IGNORED:
            self._outcome.tokens += 1
        if reason and reason is not IGNORED:
            self._planner.take_record(chunk.request.id)
            alone = self._costs.alone_seconds(chat.prompt, chat.answer)
            self._outcome.seconds = self._now - self._chats[0].at
            self._outcome.slowdowns.append((self._now - chat.at) / alone)

    def _note_waits(self) -> None:
        for request_id, notice in self._planner.take_notices():
            if notice.state == "preempted":
                self._left[request_id] = self._now
            elif notice.state == "resumed":
                self._outcome.parked.append(self._now - self._left.pop(request_id))

    def _show(self, watch: Watch) -> None:
        states = self._planner.states
        if states != self._states or self._now - self._viewed >= VIEW_SECONDS or self._planner.idle:
            self._states, self._viewed = states, self._now
            watch(View(at=self._now, slots=self._planner.slots()))
