"""What planning and reporting cost the host in a decode step of many chats: a runner that computes nothing.

`python -m benchmarks.planner_cost`: prints, and records what planning takes behind a step in flight.
"""

import argparse
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter_ns

from benchmarks import records
from parkway.backends import Rings
from parkway.engine.engine import Engine
from parkway.memory.copies import Copies
from parkway.plan.copies import Copy
from parkway.plan.limits import Limits, Pace
from parkway.plan.step import PAGE_TOKENS, Chunk, StepPlan
from parkway.report import Facts
from parkway.request import Request, SamplingParams
from parkway.runner import Sampled
from parkway.runner.edits import NO_EDITS, Edits

COMMAND = "python -m benchmarks.planner_cost"
CHATS = 64
STEPS = 2000
PROMPT_TOKENS = 30
PAGES_EACH = -(-(PROMPT_TOKENS + 2 * STEPS) // PAGE_TOKENS)
VOCABULARY = 1000
REACH = {"plan": 200, "step": 400}
"""Most µs a step at CHATS chats; `step` is all that an engine's step costs besides its runner, plan included."""


class IdleRunner:
    """Every chunk samples the same token, at no cost. `nanoseconds`: what it took of the engine's time."""

    pool_bytes = page_bytes = buffer_bytes = 0
    exact = True
    bit_check: str | None = None
    embedding_width = 0
    state_bytes = ring_bytes = checkpoint_bytes = 0
    checkpoints: int | None = None
    rings: Rings | None = None
    again = None

    def __init__(self, chats: int, ahead: int) -> None:
        self.pages = PAGES_EACH * chats
        self.n_ctx = self.pages * PAGE_TOKENS
        self.batch_tokens = PROMPT_TOKENS * chats
        self.logit_rows = chats
        self.ahead = ahead
        self.nanoseconds = 0
        self._in_flight: deque[StepPlan] = deque()

    def copies(self, most_bytes: int, *, beside: bool) -> Copies:
        raise NotImplementedError("nobody is parked")

    def launch(self, plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
        self._in_flight.append(plan)

    def land(self) -> list[tuple[Chunk, Sampled]]:
        started = perf_counter_ns()
        landed = [(chunk, Sampled(7, None, [])) for chunk in self._in_flight.popleft().chunks]
        self.nanoseconds += perf_counter_ns() - started
        return landed


class NoCopies:
    """Where nobody is parked."""

    pages = page_bytes = held_bytes = 0

    def submit(self, copy: Copy) -> None:
        raise AssertionError("a chat is parked")

    def advance(self) -> None:
        pass

    def landed(self) -> list[Copy]:
        return []

    wait = make_ready = reserve = release = advance
    drain = landed


def engine_with(chats: int, ahead: int) -> tuple[Engine, IdleRunner]:
    """An engine whose chats all decode and will not end within STEPS."""
    runner = IdleRunner(chats, ahead)
    n_ctx = PAGES_EACH * PAGE_TOKENS
    limits = Limits(
        slots=chats,
        pages=runner.pages,
        n_ctx=n_ctx,
        batch_tokens=runner.batch_tokens,
        logit_rows=runner.logit_rows,
        ahead=ahead,
    )
    facts = Facts(
        model="idle", n_ctx=n_ctx, slots=chats, vocab_size=VOCABULARY, fingerprint="", weight_bytes=0, pool_bytes=0
    )
    engine = Engine(runner, limits, facts, NoCopies())
    for number in range(chats):
        prompt = [(number + i) % VOCABULARY for i in range(PROMPT_TOKENS)]
        engine.arrive(Request(id=number, prompt=prompt, sampling=SamplingParams(), seed=0, stop_ids=frozenset({1, 2})))
    engine.step()
    return engine, runner


def timed(call: Callable[[], object], clock: IdleRunner) -> float:
    """Median µs of a call, without what the runner took of it."""
    times = []
    for _ in range(STEPS):
        before, started = clock.nanoseconds, perf_counter_ns()
        call()
        times.append(perf_counter_ns() - started - (clock.nanoseconds - before))
    return statistics.median(times) / 1000


def costs(chats: int, ahead: int) -> dict[str, float]:
    """Median µs of `plan` alone and of a whole step."""
    engine, runner = engine_with(chats, ahead)
    step = timed(engine.step, runner)
    planner, plan_times = engine._planner, []
    for _ in range(STEPS // 2):
        started = perf_counter_ns()
        plan = planner.plan(Pace())
        plan_times.append(perf_counter_ns() - started)
        runner.launch(plan)
        for chunk, sampled in runner.land():
            planner.sampled(chunk, sampled.token_id)
    return {"plan": statistics.median(plan_times) / 1000, "step": step}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=records.RESULTS / "cpu.json", help="where the figures go")
    results = parser.parse_args().results
    for ahead in (0, 1):
        found = costs(CHATS, ahead)
        for name, microseconds in found.items():
            print(f"{CHATS} chats, {ahead} steps ahead: {name} {microseconds:.0f} µs (reach: {REACH[name]})")
    records.write(
        results,
        figure=f"planner, per step at {CHATS} chats",
        value=round(found["plan"], 1),
        unit="µs",
        better="lower",
        reach=REACH["plan"],
        command=COMMAND,
    )


if __name__ == "__main__":
    main()
