"""The loop that reads aloud: plan, copy, compute, tell. Speaks token ids; knows no text, thread or socket."""

from collections import deque
from collections.abc import Callable
from time import monotonic

from msgspec import structs

from parkway.engine.choosing import Choosing
from parkway.engine.embeddings import Embeddings
from parkway.engine.parks import Parks
from parkway.engine.tallies import Pacer, Tally
from parkway.memory.copies import Copies
from parkway.plan.limits import Limits, Pace
from parkway.plan.planner import IGNORED, Planner
from parkway.plan.step import Chunk, StepPlan
from parkway.report import Facts, Report, Snapshot, View
from parkway.request import POOL_FULL, Output, Request, Vocabulary
from parkway.runner import NOTHING_ALLOWED, Runner, Sampled

CROWDED = 0.25
"""Share of the pool in use from which on parks are prepared for: with a few chats it can be full soon."""
NO_TOKEN = "no token is allowed here"
"""The error of a request whose grammar, bias and the like forbid every token."""
NO_NUMBERS = "what the model computes of this chat is not finite: weights are damaged, or numbers grow too large"
"""The error of a request whose logits, log-probabilities or embedding hold no numbers. Others don't notice."""
PATIENCE = 0.1
"""Share of a step for which the next is put off while one is in flight, so that chats with short copies are in it."""
VIEW_SECONDS = 0.1
"""A view is no older than this while something happens."""


class Engine:
    """One model serving many requests. Not thread-safe: a door's inbox brings the events to the thread that steps.

    `clock` gives seconds and never goes back. No answer depends on it, only who waits for whom.
    """

    def __init__(
        self, runner: Runner, limits: Limits, facts: Facts, copies: Copies, clock: Callable[[], float] = monotonic
    ) -> None:
        self.facts = facts
        self._runner = runner
        self._planner, self._pacer = Planner(limits), Pacer()
        self._parks = Parks(self._planner, copies, self._pacer)
        self._clock = clock
        self._pages_total, self._ahead = limits.pages, limits.ahead
        self._open: set[int] = set()
        self._choosing = Choosing(facts.vocab_size, runner.again)
        self._constraints = self._choosing.constraints
        self._embeddings = Embeddings()
        self._outputs: list[Output] = []
        self._untold = False
        self._steps = self._prompt_tokens = self._cached_tokens = self._answer_tokens = 0
        self._finished: dict[str, int] = {}
        self._gap, self._last_token = Tally(), dict[int, float]()
        self._launched = deque[float]()
        self._landed = self._viewed = 0.0
        self._states: list[str] = []

    @property
    def idle(self) -> bool:
        """There is nothing to compute, to wait for or to tell until the next event."""
        return not self._untold and self._planner.idle

    @property
    def snapshot(self) -> Snapshot:
        planner = self._planner
        return Snapshot(
            running=planner.running,
            waiting=planner.waiting,
            pages_used=planner.pages_used,
            pages_total=self._pages_total,
            steps=self._steps,
            prompt_tokens=self._prompt_tokens,
            answer_tokens=self._answer_tokens,
            cached_tokens=self._cached_tokens,
            finished=self._finished,
            parked=planner.parked,
            parks=planner.parks,
            resumes=planner.resumes,
            recomputes=planner.recomputes,
            parked_bytes=self._parks.parked_bytes,
            host_bytes=self._parks.held_bytes,
        )

    def teach(self, vocabulary: Vocabulary) -> None:
        """What the token ids stand for; must precede the first request with a grammar."""
        self._constraints.teach(vocabulary)

    def rest(self) -> None:
        """Nobody has been here for a while: what would stop steps when the first grammar comes is done now."""
        self._constraints.index()

    def arrive(self, request: Request) -> None:
        """Take a request in. One that can't be computed ends at once with an error in the next report."""
        error = self._fault(request)
        if error is None:
            self._open.add(request.id)
            self._choosing.open(request)
            self._planner.arrive(request)
            self._untold = True
            return
        if request.id in self._open:  # nobody could tell the outputs of the two apart, so neither goes on
            self._planner.cancel(request.id)
        self._end(Output(request.id, finish_reason="error", error=error))

    def cancel(self, request_id: int) -> None:
        """End a request now; its slot and pages are free for the next step. Does nothing if it has ended already."""
        if request_id in self._open:
            self._planner.cancel(request_id)
            self._end(Output(request_id, finish_reason="cancelled"))

    def step(self) -> Report | None:
        """Launch the next step, then wait for all but the `ahead` newest; for all if there is nothing to launch.

        Returns what came of those and of the events before; None if that is nothing.
        """
        planner, parks, now = self._planner, self._parks, self._clock()
        self._untold |= parks.settle(now)
        if self._choosing.all_await(len(self._open)):
            self._land_all()
        self._take_masks()
        pace = self._pacer.pace(now)
        if planner.parked and planner.in_flight:
            self._bring_back(pace)
        plan = planner.plan(pace)
        parks.begin(plan.copies, now)
        self._fail(planner.take_failed())
        self._tell_notices()
        parks.advance()  # before the launch, because on the CPU that returns when it has computed
        if plan.chunks:
            self._launch(plan, now)
        elif not (planner.in_flight or planner.idle or self._outputs or self._untold):
            self._await()
        for _ in range(planner.in_flight - (self._ahead if plan.chunks else 0)):
            self._land_step()
        if planner.idle:
            self._untold |= parks.release()
        elif planner.pages_used > self._pages_total * CROWDED:
            parks.reserve()
        if not (plan.chunks or self._outputs or self._untold):
            return None
        outputs, self._outputs, self._untold = self._outputs, [], False
        return Report(outputs, self.snapshot, self._view())

    def close(self) -> None:
        """Waits for the steps, copies and masks under way, so that nobody uses the pool any more. The last call."""
        for _ in range(self._planner.in_flight):
            self._runner.land()
        self._parks.drain()
        self._constraints.close()

    def _launch(self, plan: StepPlan, now: float) -> None:
        self._launched.append(now)
        self._runner.launch(plan, self._choosing.edits(plan, self._planner))
        self._steps += 1

    def _bring_back(self, pace: Pace) -> None:
        """Whose copies are short need not sit out a step: the device is busy with the one in flight meanwhile."""
        self._parks.begin(self._planner.prepare(pace), pace.now)
        self._untold |= self._parks.settle_soon(pace.now, PATIENCE * self._pacer.step_seconds)

    def _land_step(self) -> None:
        """Takes the results of the oldest step in flight. It has run since its launch, or since the one before it."""
        landed = self._runner.land()
        now = self._clock()
        self._pacer.stepped(
            now - max(self._launched.popleft(), self._landed), sum([len(each.tokens) for each, _ in landed])
        )
        self._landed = now
        for chunk, sampled in landed:
            self._land(chunk, self._choosing.kept(chunk, sampled, self._planner))
        self._constraints.begin()

    def _land_all(self) -> None:
        """Chats that all wait for their last tokens share a step: those of two in flight could only take turns."""
        for _ in range(self._planner.in_flight):
            self._land_step()

    def _take_masks(self) -> None:
        """Chats whose grammar has told what is allowed next go on, and those for which nothing is end."""
        for constraint in self._constraints.landed():
            request = constraint.request
            if constraint.error is not None:
                self._give_up(request, "error", constraint.error)
            elif constraint.ended:
                self._give_up(request, "stop")
            else:
                self._planner.release(request.id)

    def _await(self) -> None:
        """There is nothing to compute before a mask or a copy has landed."""
        if self._constraints.due:
            self._constraints.sleep()
        elif self._planner.copying:
            self._parks.sleep()
        else:
            raise RuntimeError("there are requests to compute, but the planner has no step for them")

    def _tell_notices(self) -> None:
        for request_id, notice in self._planner.take_notices():
            self._parks.told(request_id, notice)
            self._last_token.pop(request_id, None)
            self._outputs.append(Output(request_id, notice=notice))

    def _fail(self, request_ids: list[int]) -> None:
        for request_id in request_ids:
            self._end(Output(request_id, finish_reason="error", error=POOL_FULL))

    def _view(self) -> View | None:
        """What slots and histograms look like, if a slot has changed its state or some time has passed."""
        now, states = self._clock(), self._planner.states
        if states == self._states and now - self._viewed < VIEW_SECONDS and not self._planner.idle:
            return None
        self._states, self._viewed = states, now
        parks = self._parks
        return View(
            at=now,
            slots=self._planner.slots(),
            park=parks.park.histogram,
            restore=parks.restore.histogram,
            wait=parks.wait.histogram,
            gap=self._gap.histogram,
        )

    def _fault(self, request: Request) -> str | None:
        prompt, n_ctx, vocab_size = request.prompt, self.facts.n_ctx, self.facts.vocab_size
        if request.id in self._open:
            return f"request {request.id} is already open"
        if not prompt:
            return "the prompt is empty"
        if len(prompt) >= n_ctx:
            return f"the prompt has {len(prompt)} tokens and leaves no room in a context of {n_ctx}"
        if min(prompt) < 0 or max(prompt) >= vocab_size:
            return f"a token id of the prompt is not between 0 and {vocab_size - 1}"
        if any(not 0 <= token < vocab_size for token, _ in request.sampling.logit_bias):
            return f"a token id of logit_bias is not between 0 and {vocab_size - 1}"
        return None

    def _land(self, chunk: Chunk, sampled: Sampled) -> None:
        request, token_id = chunk.request, sampled.token_id
        reason = self._planner.sampled(chunk, token_id)
        if reason is IGNORED:
            return
        if not sampled.finite:
            self._give_up(request, "error", NO_NUMBERS)
            return
        if token_id == NOTHING_ALLOWED or not self._constraints.allows(request.id, token_id):
            self._give_up(request, "error", self._constraints.error(request.id) or NO_TOKEN)
            return
        if sampled.surprise is not None:
            self._choosing.chosen(request.id, sampled.surprise)
        if sampled.hidden is not None:
            self._embeddings.add(request.id, sampled.hidden)
        if token_id is None and reason is None and not sampled.scored:
            self._tell_notices()
            return  # a piece of a prompt, or of a chat that is computed again
        cached = 0
        if chunk.next_index == len(request.prompt) and (chunk.samples or reason):
            self._prompt_tokens += chunk.end
            cached = chunk.cached
            self._cached_tokens += cached
        token_ids = [] if token_id is None else [token_id]
        self._answer_tokens += len(token_ids)
        if token_id is not None:
            self._time_gap(request.id)
            if reason is None:
                self._constraints.accept(request.id, token_id)
        logprobs = [] if sampled.logprob is None else [sampled.logprob]
        output = Output(request.id, token_ids, logprobs, sampled.scored, reason, cached_tokens=cached)
        if reason is None:
            self._outputs.append(output)
        else:
            self._end(structs.replace(output, embedding=self._embeddings.take(request)))
        if self._planner.parked:
            self._tell_notices()

    def _give_up(self, request: Request, reason: str, error: str | None = None) -> None:
        """Ends a chat for which no token may follow, wherever it is: never with one that was forbidden."""
        self._tell_notices()
        self._planner.cancel(request.id)
        self._end(Output(request.id, finish_reason=reason, error=error))

    def _time_gap(self, request_id: int) -> None:
        """A token has come; between it and the one before, the chat was not out."""
        last, now = self._last_token.get(request_id), self._clock()
        if last is not None:
            self._gap.add(now - last)
        self._last_token[request_id] = now

    def _end(self, output: Output) -> None:
        reason, request_id = output.finish_reason or "error", output.request_id
        self._open.discard(request_id)
        self._choosing.drop(request_id)
        self._embeddings.drop(request_id)
        self._last_token.pop(request_id, None)
        self._finished = {**self._finished, reason: self._finished.get(reason, 0) + 1}
        self._outputs.append(structs.replace(output, preempt=self._planner.take_record(request_id)))
        self._untold = True
