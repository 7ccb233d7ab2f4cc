"""What parks cost: chats that outgrow the pool, the gaps of one that is never parked, throughput, latency of a park.

python -m benchmarks.parks [MODEL] [--device cuda] [PART ...] measures through an engine in this process and records.
"""

import argparse
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from benchmarks import records
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.engine.engine import Engine
from parkway.plan.copies import Copy, Owner
from parkway.plan.limits import Knobs
from parkway.plan.step import StepPlan
from parkway.request import Output, Request, SamplingParams
from parkway.runner.edits import NO_EDITS, Edits
from parkway.runner.load import Model, load_model
from parkway.weights import default_model

COMMAND = "python -m benchmarks.parks"
ROUNDS = 3
ENOUGH = 30
"""Gaps of a row count, with copies and without, that are compared."""
WARM = 8
"""Steps of a row count that an engine takes before its gaps count: the first captures a graph, the next fill caches."""
CROWDS = ((4, 937, 2048, 8192), (8, 200, 800, 2048))
"""Chats, tokens of each prompt and answer, tokens of the pool."""
FORCED = Knobs(park_every=64)
REACH = {"cpu": {"p99": 1.15, "max": 1.5, "forced": 0.93}, "cuda": {"p99": 1.06, "max": 1.2, "forced": 0.97}}
LATENCIES = 5
PARTS = ("crowds", "survivor", "forced", "latency")


@dataclass(slots=True)
class Bench:
    """A model, and where its figures go."""

    model: Model
    settings: EngineSettings
    results: Path
    shape: str

    @property
    def on_gpu(self) -> bool:
        return self.settings.device == "cuda"

    @property
    def reach(self) -> dict[str, float]:
        return REACH[self.settings.device]

    def engine(self, pool: int, chats: int, knobs: Knobs = FORCED) -> Engine:
        return make_engine(self.model, replace(self.settings, ctx_size=pool, parallel=chats), knobs=knobs)

    def record(
        self, figure: str, value: float, unit: str, reach: float, better: Literal["higher", "lower"] = "higher"
    ) -> None:
        made = records.write(
            self.results,
            figure=f"{self.shape}{figure}",
            value=float(f"{value:.4g}"),
            unit=unit,
            better=better,
            reach=reach,
            command=COMMAND,
            packages=("torch", "triton") if self.on_gpu else (),
        )
        print(f"{made.figure}: {value:,.4g} {unit} (reach {reach:,g}){'' if made.reached else ' SHORT'}", flush=True)


def request(index: int, engine: Engine, prompt: int, answer: int) -> Request:
    """One whose prompt shares nothing with the others."""
    how = SamplingParams(max_tokens=answer, temperature=0.0, ignore_eos=True)
    tokens = [(index * 7919 + place * 31 + 1) % engine.facts.vocab_size for place in range(prompt)]
    return Request(id=index, prompt=tokens, sampling=how, seed=0)


def arrive(engine: Engine, chats: int, prompt: int, answer: int, *, apart: int = 0, first: int = 0) -> None:
    """So many chats, numbered from `first` on, each some steps after the one before."""
    for index in range(first, first + chats):
        engine.arrive(request(index, engine, prompt, answer))
        for _ in range(apart):
            engine.step()


def outputs_of(engine: Engine) -> Iterable[Output]:
    while not engine.idle:
        report = engine.step()
        yield from report.outputs if report else ()


def crowds(bench: Bench) -> None:
    """Whether all finish that outgrow the pool together."""
    for chats, prompt, answer, pool in CROWDS:
        finished, parks, seconds = 0, 0, perf_counter()
        for _ in range(ROUNDS):
            engine = bench.engine(pool, chats, Knobs())
            arrive(engine, chats, prompt, answer)
            finished += sum(output.finish_reason == "length" for output in outputs_of(engine))
            parks += engine.snapshot.parks
        seconds = perf_counter() - seconds
        what = f"{chats} chats of {prompt} + {answer} tokens in a pool of {pool}"
        print(f"{what}: {ROUNDS} rounds in {seconds:.1f} s, {parks} parks")
        bench.record(f"{what}: finished in {ROUNDS} rounds", finished, "chats", chats * ROUNDS)


@dataclass(slots=True)
class Watched:
    """Gaps of the first chat of engines, by rows of the step and whether a copy was in flight."""

    gaps: dict[tuple[int, bool], list[float]] = field(default_factory=lambda: defaultdict(list))

    def watch(self, engine: Engine) -> None:
        """Runs it until it is idle."""
        launch, planner, steps = engine._runner.launch, engine._planner, list[tuple[int, bool]]()
        taken = Counter[int]()

        def noted(plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
            decodes = all(len(chunk.tokens) == 1 for chunk in plan.chunks)
            rows = len(plan.chunks) if decodes else 0
            taken[rows] += 1
            steps.append((rows if taken[rows] > WARM else 0, planner.copying > 0))
            launch(plan, edits)

        engine._runner.launch = noted  # type: ignore[method-assign]
        last = 0.0
        for output in outputs_of(engine):
            if output.request_id == 0 and output.token_ids:
                now = perf_counter()
                ran = steps[-1 - engine._ahead :]
                if last and all(rows == ran[0][0] > 0 for rows, _ in ran):
                    self.gaps[ran[0][0], any(copying for _, copying in ran)].append(now - last)
                last = now

    def relative(self, copying: bool) -> list[float]:
        """Gaps over the median gap without a copy of the same row count, where there are enough of both."""
        found = []
        for rows in {rows for rows, _ in self.gaps}:
            without, with_copy = self.gaps[rows, False], self.gaps[rows, True]
            if min(len(without), len(with_copy)) >= ENOUGH:
                usual = statistics.median(without)
                found += [gap / usual for gap in (with_copy if copying else without)]
        return sorted(found)


def p99(values: list[float]) -> float:
    """Of sorted values."""
    return values[int(0.99 * (len(values) - 1))]


def survivor(bench: Bench) -> None:
    """Gaps of a chat that is never parked: while others are all the time, and beside as many without a park."""
    watched = Watched()
    for chats in (2, 3, 4):
        engine = bench.engine(8192, chats, Knobs())
        arrive(engine, chats, 937, 600)
        watched.watch(engine)
    engine = bench.engine(8192, 4, Knobs(park_every=64, forget=True, exempt_first=True))
    arrive(engine, 4, 937, 1024, apart=21)
    watched.watch(engine)
    during, between = watched.relative(True), watched.relative(False)
    counts = f"{len(during)} gaps with a copy in flight, {len(between)} without; {engine.snapshot.parks} parks"
    print(f"{counts}; p99 {p99(during):.3f} and {p99(between):.3f}, maximum {during[-1]:.3f} and {between[-1]:.3f}")
    what = "a running chat's gap with a copy in flight over without"
    bench.record(f"{what}, p99", p99(during) / p99(between), "times", bench.reach["p99"], "lower")
    bench.record(f"{what}, maximum", during[-1] / between[-1], "times", bench.reach["max"], "lower")


def rate(bench: Bench, knobs: Knobs) -> float:
    """Tokens per second of four chats in a pool that holds them all. Four others were there before: the system takes
    its time to give memory that nobody has used yet, such as that for parked chats."""
    engine = bench.engine(8192, 4, knobs)
    arrive(engine, 4, 937, 512)
    for _ in outputs_of(engine):
        pass
    arrive(engine, 4, 937, 512, first=4)
    for _ in range(40):
        engine.step()
    before, away, started = engine.snapshot, engine._parks.wait.histogram.seconds, perf_counter()
    for _ in outputs_of(engine):
        pass
    seconds, now = perf_counter() - started, engine.snapshot
    parks, recomputes = now.parks - before.parks, now.recomputes - before.recomputes
    waited = (engine._parks.wait.histogram.seconds - away) * 1000 / max(now.resumes - before.resumes, 1)
    print(f"  {parks} parks, {recomputes} computed again, {waited:.1f} ms away on average")
    return (now.answer_tokens - before.answer_tokens) / seconds


def forced(bench: Bench) -> None:
    """Throughput with a park of each chat every 64 tokens over that with none, in turns."""
    kinds = {"none": Knobs(), "every 64": FORCED, "every 64, no page left on the device": replace(FORCED, forget=True)}
    rounds = [{name: rate(bench, knobs) for name, knobs in kinds.items()} for _ in range(ROUNDS)]
    rates = {name: max(each[name] for each in rounds) for name in kinds}
    for name, value in rates.items():
        print(f"parks {name}: {value:,.0f} tok/s, {value / rates['none']:.3f} of none")
    ratio = rates["every 64"] / rates["none"]
    bench.record("a park every 64 tokens, four chats, throughput over none", ratio, "times", bench.reach["forced"])


@dataclass(slots=True)
class Landings:
    """When parks of an engine were decided and had landed, by a thread that looks all the time."""

    engine: Engine
    pages: list[int] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    """Milliseconds from the decision until the last page was there."""
    behind: list[float] = field(default_factory=list)
    """… from the end of the chat's last step, for which its last page had to wait."""

    def watch(self) -> None:
        """Runs the engine until it is idle."""
        copies = self.engine._parks._copies._engine  # type: ignore[attr-defined]
        submit, over = copies.submit, threading.Event()

        def noted(copy: Copy) -> None:
            decided = perf_counter()
            submit(copy)
            if copy.owner is Owner.PARK:
                threading.Thread(target=self._look, args=(copies._open[-1], decided, over), daemon=True).start()

        copies.submit = noted
        for _ in outputs_of(self.engine):
            pass
        over.set()

    def _look(self, opened: Any, decided: float, over: threading.Event) -> None:
        started = decided
        while not over.is_set():
            now = perf_counter()
            if opened.end is not None and opened.end.happened:
                self.pages.append(len(opened.copy.sources))
                self.whole.append(1000 * (now - decided))
                self.behind.append(1000 * (now - started))
                return
            if opened.behind is not None and not opened.behind.happened:
                started = now
            time.sleep(50e-6)


def latency(bench: Bench) -> None:
    """Parks of a chat of 2,000 tokens beside a longer one: with room to spare, and in a pool that is nearly full."""
    for name, pool, reach in (("cold", 16384, 8.0), ("saved ahead", 4544, 1.0)):
        engine = bench.engine(pool, 2, Knobs(park_every=40, exempt_first=True))
        landings = Landings(engine)
        engine.arrive(request(0, engine, 2200, 60 * LATENCIES))
        for index in range(1, 1 + LATENCIES):
            engine.arrive(request(index, engine, 1960, 42))
        landings.watch()
        pages, whole, behind = (statistics.median(each) for each in (landings.pages, landings.whole, landings.behind))
        print(f"{name}: {len(landings.pages)} parks of {pages} pages (median), {whole:.2f} ms, {behind:.2f} ms behind")
        if not bench.on_gpu:
            continue  # of the CPU it is only told
        bench.record(f"park of 2,000 tokens, decision to landed, {name}", whole, "ms", reach, "lower")
        if name == "saved ahead":  # what saving ahead can change: the decision itself is made while a step runs
            bench.record("park of 2,000 tokens, saved ahead, last step to landed", behind, "ms", reach, "lower")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help=", ".join(PARTS))
    parser.add_argument("--model", type=Path, help="default: SmolLM2 on the CPU, the shape of Qwen3-8B on a GPU")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    path = arguments.model or (Path("shape:qwen3-8b:BF16") if on_gpu else default_model.fetch())
    settings = EngineSettings(device=arguments.device)
    results = records.RESULTS / ("h200.json" if on_gpu else "cpu.json")
    bench = Bench(load_model(path, settings), settings, results, "qwen3-8b, bf16: " if on_gpu else "")
    parts = {"crowds": crowds, "survivor": survivor, "forced": forced, "latency": latency}
    for name in arguments.parts:
        parts[name](bench)


if __name__ == "__main__":
    main()
