"""How much of a single-stream decode step is Python: the part of its time that is not spent inside the kernels.

python -m benchmarks.python_share [MODEL]
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.records import RESULTS, write
from parkway.config import EngineSettings
from parkway.engine.build import build_engine
from parkway.engine.engine import Engine
from parkway.request import Request, SamplingParams
from parkway.weights import default_model

TOKENS = 500


class Stopwatch:
    """Wraps a call and remembers how long its last one took, in seconds."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        self.seconds = 0.0

    def __call__(self, *arguments: Any) -> None:
        start = time.perf_counter()
        self.call(*arguments)
        self.seconds = time.perf_counter() - start


def step_times(engine: Engine, kernels: Stopwatch) -> list[tuple[float, float]]:
    """(whole step, kernels) in seconds of each decode step of one chat, as the engine's loop runs it."""
    prompt = [1 + i for i in range(100)]
    engine.arrive(Request(id=1, prompt=prompt, sampling=SamplingParams(max_tokens=TOKENS, ignore_eos=True), seed=1))
    engine.step()
    times = []
    while not engine.idle:
        start = time.perf_counter()
        engine.step()
        times.append((time.perf_counter() - start, kernels.seconds))
    return times


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else default_model.fetch()
    engine = build_engine(path, EngineSettings(device="cpu"))
    program = engine._runner.program  # type: ignore[attr-defined]
    kernels = Stopwatch(program.run)
    program.run = kernels
    times = step_times(engine, kernels)
    share = statistics.median((whole - inside) / whole for whole, inside in times)
    microseconds = statistics.median((whole - inside) * 1e6 for whole, inside in times)
    step = statistics.median(whole * 1e3 for whole, _ in times)
    print(f"{microseconds:.0f} µs of Python in a step of {step:.2f} ms: {share:.1%}")
    write(
        RESULTS / "cpu.json",
        figure="python share of a single-stream decode step",
        value=round(100 * share, 2),
        unit="%",
        better="lower",
        reach=10,
        command="python -m benchmarks.python_share",
    )


if __name__ == "__main__":
    main()
