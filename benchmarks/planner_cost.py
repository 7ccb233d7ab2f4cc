"""What planning and reporting cost the host in a step of many chats: a runner that computes nothing.

`python -m benchmarks.planner_cost`: prints, and records what planning takes behind a step in flight: of chats that all
decode, and of chats that come and go and outgrow a pool for a third of them, with parks, returns, turns and copies.
"""

import argparse
import itertools
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, perf_counter_ns
from typing import Any
from unittest.mock import patch

from benchmarks import records
from parkway.backends import Rings
from parkway.config import EngineSettings
from parkway.engine.engine import Engine
from parkway.memory.copies import Copies
from parkway.plan.copies import Copy
from parkway.plan.limits import Limits, Pace
from parkway.plan.step import PAGE_TOKENS, Chunk, StepPlan
from parkway.report import Facts, Snapshot
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
CONTEXT, SHARE, STEP_SECONDS = 2048, 0.35, 0.02
"""Of a crowd: tokens of a chat at most, what share of them all has room, and what a step takes by its clock."""


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
        chunks = self._in_flight.popleft().chunks
        landed = [(chunk, Sampled(7 if chunk.samples else None, None, [])) for chunk in chunks]
        self.nanoseconds += perf_counter_ns() - started
        return landed


class IdleCopies:
    """Copies that have landed when they are asked for."""

    pages = page_bytes = held_bytes = 0

    def __init__(self) -> None:
        self._open: list[Copy] = []

    def submit(self, copy: Copy) -> None:
        self._open.append(copy)

    def advance(self) -> None:
        pass

    def landed(self) -> list[Copy]:
        landed, self._open = self._open, []
        return landed

    wait = make_ready = reserve = release = advance
    drain = landed


def engine_with(chats: int, ahead: int) -> tuple[Engine, IdleRunner]:
    """An engine whose chats all decode and will not end within STEPS."""
    runner = IdleRunner(chats, ahead)
    engine = idle_engine(runner, PAGES_EACH * PAGE_TOKENS, monotonic)
    for number in range(chats):
        prompt = [(number + i) % VOCABULARY for i in range(PROMPT_TOKENS)]
        engine.arrive(Request(id=number, prompt=prompt, sampling=SamplingParams(), seed=0, stop_ids=frozenset({1, 2})))
    engine.step()
    return engine, runner


def idle_engine(runner: IdleRunner, n_ctx: int, clock: Callable[[], float], **more: Any) -> Engine:
    """With a slot for each logit row; `more`: of its limits."""
    slots = runner.logit_rows
    limits = Limits(
        slots=slots,
        pages=runner.pages,
        n_ctx=n_ctx,
        batch_tokens=runner.batch_tokens,
        logit_rows=slots,
        ahead=runner.ahead,
        **more,
    )
    facts = Facts(
        model="idle", n_ctx=n_ctx, slots=slots, vocab_size=VOCABULARY, fingerprint="", weight_bytes=0, pool_bytes=0
    )
    return Engine(runner, limits, facts, IdleCopies(), clock)


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


def crowded() -> tuple[list[float], Snapshot]:
    """µs of each plan of an engine to which a chat comes for each that ends."""
    runner, times, now = IdleRunner(CHATS, 1), list[float](), 0.0
    runner.n_ctx, runner.pages = CONTEXT, int(CHATS * CONTEXT // PAGE_TOKENS * SHARE)
    turns = EngineSettings().preempt_quantum
    engine = idle_engine(runner, CONTEXT, lambda: now, host_pages=CHATS * CONTEXT, quantum=turns)
    plan = engine._planner.plan

    def timed_plan(pace: Pace) -> StepPlan:
        started = perf_counter_ns()
        made = plan(pace)
        times.append((perf_counter_ns() - started) / 1000)
        return made

    with patch.object(engine._planner, "plan", timed_plan):
        arrivals = iter(map(visitor, itertools.count()))
        for _ in range(CHATS):
            engine.arrive(next(arrivals))
        for _ in range(3 * STEPS):
            now += STEP_SECONDS
            report = engine.step()
            for _ in range(sum(bool(output.finish_reason) for output in report.outputs) if report else 0):
                engine.arrive(next(arrivals))
    return times, engine.snapshot


def visitor(number: int) -> Request:
    prompt = [(number * 37 + place) % VOCABULARY for place in range(100 + number * 7 % 450)]
    how = SamplingParams(max_tokens=300 + number * 23 % 1400)
    return Request(id=number, prompt=prompt, sampling=how, seed=0, stop_ids=frozenset({1, 2}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=records.RESULTS / "cpu.json", help="where the figures go")
    results = parser.parse_args().results
    for ahead in (0, 1):
        found = costs(CHATS, ahead)
        for name, microseconds in found.items():
            print(f"{CHATS} chats, {ahead} steps ahead: {name} {microseconds:.0f} µs (reach: {REACH[name]})")
    times, snapshot = crowded()
    mean, slow = statistics.fmean(times), statistics.quantiles(times, n=100)[98]
    print(f"a crowd of {CHATS}, {snapshot.parks} parks: plan {mean:.0f} µs on the average, one in 100 above {slow:.0f}")
    figure = f"planner, per step at {CHATS} chats"
    for name, value in ((figure, found["plan"]), (f"{figure} that outgrow the pool, mean", mean)):
        records.write(
            results,
            figure=name,
            value=round(value, 1),
            unit="µs",
            better="lower",
            reach=REACH["plan"],
            command=COMMAND,
        )


if __name__ == "__main__":
    main()
