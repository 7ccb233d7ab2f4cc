"""Where a decode step's device time goes: kernels by name, with what they take of a step. Prints only.

`python -m benchmarks.gpu_profile [shape:NAME[:TYPE]] [--streams 1,4]`: the first thing to look at when a figure of
benchmarks.h200 falls short.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.h200 import ANSWER, PROMPT, settings
from parkway.engine.build import make_engine
from parkway.engine.engine import Engine
from parkway.request import Request, SamplingParams
from parkway.runner.load import load_model

STEPS = 30
MOST_KERNELS = 14


def decoding(engine: Engine, streams: range) -> None:
    """Brings these streams behind their prompts, and the graphs of their steps into being."""
    how = SamplingParams(max_tokens=ANSWER, temperature=0.0, ignore_eos=True)
    for index in streams:
        prompt = [(index * 7919 + place * 31) % engine.facts.vocab_size for place in range(PROMPT)]
        engine.arrive(Request(id=index, prompt=prompt, sampling=how, seed=0))
    for _ in range(20 + len(streams)):
        engine.step()


def kernels(engine: Engine) -> Iterator[tuple[str, float, float]]:
    """Kernel, launches a step, microseconds a step; those that take most first, then all."""
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(STEPS):
            engine.step()
        torch.cuda.synchronize()
    launches, micros = Counter[str](), Counter[str]()
    for event in recorded.events() or ():
        if event.device_type.name == "CUDA":
            launches[event.name] += 1
            micros[event.name] += event.time_range.elapsed_us()
    for name, total in micros.most_common(MOST_KERNELS):
        yield name, launches[name] / STEPS, total / STEPS
    yield "all", launches.total() / STEPS, micros.total() / STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=Path("shape:qwen3-8b:Q4_K"), metavar="MODEL")
    parser.add_argument("--streams", default="1,4", metavar="N,N", help="row counts to look at (1,4)")
    arguments = parser.parse_args()
    model = load_model(arguments.model, settings("exact"))
    for streams in map(int, arguments.streams.split(",")):
        engine = make_engine(model, settings("exact"))
        decoding(engine, range(streams))
        print(f"{arguments.model}, {streams} streams: launches and microseconds a step")
        for name, launches, micros in kernels(engine):
            print(f"  {launches:7.1f} {micros:9.1f}  {name[:90]}")


if __name__ == "__main__":
    main()
