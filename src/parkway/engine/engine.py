"""The loop that reads aloud: plan, compute, tell. Speaks token ids; knows no text, thread, socket or clock."""

from parkway.plan.planner import IGNORED, Limits, Planner
from parkway.plan.step import Chunk
from parkway.request import Facts, Output, Report, Request, Snapshot
from parkway.runner import Runner, Sampled


class Engine:
    """One model serving many requests. Not thread-safe: a door's inbox brings the events to the thread that steps."""

    def __init__(self, runner: Runner, limits: Limits, facts: Facts) -> None:
        self.facts = facts
        self._runner = runner
        self._planner = Planner(limits)
        self._pages_total = limits.pages
        self._ahead = limits.ahead
        self._open: set[int] = set()
        self._outputs: list[Output] = []
        self._untold = False
        self._steps = self._prompt_tokens = self._cached_tokens = self._answer_tokens = 0
        self._finished: dict[str, int] = {}

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
            given_back=planner.given_back,
            cached_tokens=self._cached_tokens,
            finished=self._finished,
        )

    def arrive(self, request: Request) -> None:
        """Take a request in. One that can't be computed ends at once with an error in the next report."""
        error = self._fault(request)
        if error is None:
            self._open.add(request.id)
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
        planner = self._planner
        plan = planner.plan()
        if plan.chunks:
            self._runner.launch(plan)
            self._steps += 1
        elif not planner.in_flight and not planner.idle:
            raise RuntimeError("there are requests to compute, but the planner has no step for them")
        for _ in range(planner.in_flight - (self._ahead if plan.chunks else 0)):
            for chunk, sampled in self._runner.land():
                self._land(chunk, sampled)
        if not (plan.chunks or self._outputs or self._untold):
            return None
        outputs, self._outputs, self._untold = self._outputs, [], False
        return Report(outputs, self.snapshot)

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
        return None

    def _land(self, chunk: Chunk, sampled: Sampled) -> None:
        request, token_id = chunk.request, sampled.token_id
        reason = self._planner.sampled(chunk, token_id)
        if reason is IGNORED:
            return
        if token_id is None and reason is None and not sampled.scored:
            return  # a piece of a prompt, or of a chat that is computed again
        cached = 0
        if chunk.end == len(request.prompt) and (chunk.samples or reason):
            self._prompt_tokens += chunk.end
            cached = chunk.cached
            self._cached_tokens += cached
        token_ids = [] if token_id is None else [token_id]
        self._answer_tokens += len(token_ids)
        logprobs = [] if sampled.logprob is None else [sampled.logprob]
        output = Output(request.id, token_ids, logprobs, sampled.scored, reason, cached_tokens=cached)
        if reason is None:
            self._outputs.append(output)
        else:
            self._end(output)

    def _end(self, output: Output) -> None:
        reason = output.finish_reason or "error"
        self._open.discard(output.request_id)
        self._finished = {**self._finished, reason: self._finished.get(reason, 0) + 1}
        self._outputs.append(output)
        self._untold = True
