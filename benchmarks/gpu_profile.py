"""Where a decode step's device time goes: kernels by name, with what they take of a step, launched one by one so that
none's time is waiting; then some of a step's middle in their order, launched as they are. Prints only.

`python -m benchmarks.gpu_profile [shape:NAME[:TYPE]] [--streams 1,4]`: the first thing to look at when a figure of
benchmarks.h200 falls short.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.h200 import ANSWER, PROMPT, settings
from parkway.backends.cuda.device import Launches
from parkway.engine.build import make_engine
from parkway.engine.engine import Engine
from parkway.request import Request, SamplingParams
from parkway.runner import cuda_load
from parkway.runner.load import load_model

STEPS = 30
MOST_KERNELS, IN_ORDER = 20, 24


def launched(launches: Launches) -> AbstractContextManager[Any]:
    """What is built inside launches its kernels so, whatever its weights are."""
    return patch.multiple(cuda_load, DENSE=launches, MIXTURE=launches, QUANTISED=launches, HYBRID=launches)


def decoding(engine: Engine, streams: range) -> None:
    """Brings these streams behind their prompts, and the graphs of their steps into being."""
    how = SamplingParams(max_tokens=ANSWER, temperature=0.0, ignore_eos=True)
    for index in streams:
        prompt = [(index * 7919 + place * 31) % engine.facts.vocab_size for place in range(PROMPT)]
        engine.arrive(Request(id=index, prompt=prompt, sampling=how, seed=0))
    for _ in range(20 + len(streams)):
        engine.step()


def recorded(engine: Engine) -> list[Any]:
    """The kernels of some steps, in the order in which they began."""
    with profile(activities=[ProfilerActivity.CUDA]) as made:
        for _ in range(STEPS):
            engine.step()
        torch.cuda.synchronize()
    found = [event for event in made.events() or () if event.device_type.name == "CUDA"]
    return sorted(found, key=lambda event: event.time_range.start)


def totals(events: list[Any]) -> Iterator[tuple[str, float, float]]:
    """Kernel, launches a step, microseconds a step; those that take most first, then all."""
    launches, micros = Counter[str](), Counter[str]()
    for event in events:
        launches[event.name] += 1
        micros[event.name] += event.time_range.elapsed_us()
    for name, total in micros.most_common(MOST_KERNELS):
        yield name, launches[name] / STEPS, total / STEPS
    yield "all", launches.total() / STEPS, micros.total() / STEPS


def in_order(events: list[Any]) -> Iterator[tuple[str, float, float]]:
    """Kernel, when it began and when it ended: microseconds since the first of these began."""
    middle = events[len(events) // STEPS * (STEPS // 2) + len(events) // STEPS // 2 :][:IN_ORDER]
    first = middle[0].time_range.start
    for event in middle:
        yield event.name, event.time_range.start - first, event.time_range.end - first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=Path("shape:qwen3-8b:Q4_K"), metavar="MODEL")
    parser.add_argument("--streams", default="1,4", metavar="N,N", help="row counts to look at (1,4)")
    arguments = parser.parse_args()
    model = load_model(arguments.model, settings("exact"))
    for streams in map(int, arguments.streams.split(",")):
        for how, context, lines in (
            ("one by one: launches and microseconds a step", launched(Launches(streams, streams)), totals),
            ("as they are: begin and end in microseconds", nullcontext(), in_order),
        ):
            with context:
                engine = make_engine(model, settings("exact"))
                decoding(engine, range(streams))
                print(f"{arguments.model}, {streams} streams, {how}")
                for name, first, second in lines(recorded(engine)):
                    print(f"  {first:7.1f} {second:9.1f}  {name[:90]}", flush=True)


if __name__ == "__main__":
    main()
