"""A decode step as it is, and with one thing at a time otherwise. Prints only.

`python -m benchmarks.gpu_variants [VARIANT …] [--shape qwen3-30b-a3b:BF16] [--streams 1,4,16,64]`: microseconds of a
layer, out of steps of a model of the shape that has twelve layers and few words, and how many experts such steps read.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.gpu_profile import decoding, launched
from benchmarks.h200 import ROOFLINE, settings
from parkway.backends.cuda import (
    experts,
    experts_route,
    experts_router,
    linear_config,
    linears,
    quantised_config,
    rows,
    tuner,
)
from parkway.backends.cuda.device import AHEAD, BEHIND, ONE_BY_ONE, Launches
from parkway.backends.cuda.experts_rows import Sum
from parkway.backends.cuda.linears import ExactLinears
from parkway.backends.cuda.tuner import Tuner
from parkway.engine.build import make_engine
from parkway.engine.engine import Engine
from parkway.runner.load import Model, load_model
from parkway.weights.shapes import SHAPES

SHAPE, LAYERS, VOCABULARY = "qwen3-30b-a3b:BF16", 12, 8192
REPLAYS = 100
OF_ATTENTION, OF_EXPERT = 2 * 2048 * (4096 + 1024 + 4096 + 128), 2 * 3 * 2048 * 768
"""Bytes of a layer of Qwen3-30B-A3B: what each step reads, what each expert has."""


def _apart(self: Sum, weight: torch.Tensor, epsilon: float, *, pdl: int = 0) -> torch.Tensor:
    return rows.rms_norm(self.rows(pdl=pdl), weight, epsilon, pdl=pdl)


@contextmanager
def _products(pdl: int, others: Launches) -> Iterator[None]:
    """Products of matrices are launched so, all else as `others` say."""
    with launched(others), patch.object(ExactLinears, "_early", lambda self, x: pdl):
        yield


_few, *_rest = linear_config._TABLES
_MANY = 1 << 30
VARIANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "as-is": nullcontext,
    "one-by-one": lambda: launched(Launches(_MANY, _MANY)),
    "ahead": lambda: launched(Launches(0, _MANY)),
    "behind": lambda: launched(Launches(0, 0)),
    "products-behind": lambda: _products(BEHIND, Launches(0, _MANY)),
    "products-ahead": lambda: _products(AHEAD, Launches(0, 0)),
    "products-one-by-one": lambda: _products(ONE_BY_ONE, Launches(0, _MANY)),
    "timed-alone": lambda: patch.object(linears, "in_front", lambda x, pdl: None),
    "more-splits": lambda: patch.object(quantised_config, "ENOUGH_WARPS", 4096),
    "less-splits": lambda: patch.object(quantised_config, "ENOUGH_WARPS", 2048),
    "less-linears": lambda: patch.object(linear_config, "_TABLES", (_few._replace(one=_few.one[:3]), *_rest)),
    "router-apart": lambda: patch.object(experts_router, "suits", lambda router: False),
    "norms-apart": lambda: patch.object(Sum, "normed", _apart),
}
"""Three say when kernels are launched, of any number of rows; three when products are, and all else AHEAD, BEHIND and
AHEAD; the others how parts were before, or might be."""


@contextmanager
def variant(name: str) -> Iterator[None]:
    """Everything that is built inside is so. Others than "as-is" have picks of their own."""
    with VARIANTS[name](), ExitStack() as stack:
        if name != "as-is":
            stack.enter_context(patch.object(Tuner, "_save", lambda self: None))
            stack.enter_context(patch.object(tuner, "_read", lambda path: {}))
        yield


def microseconds(engine: Engine, streams: int) -> float:
    """Of a step of so many streams that decode, on the device, by running its graph again and again."""
    runner: Any = engine._runner
    replay, _ = runner._steps.of(streams)._replays[False, False]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    replay()
    begin.record()
    for _ in range(REPLAYS):
        replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / REPLAYS


def measure(model: Model, name: str, counts: list[int]) -> None:
    with variant(name):
        engine, before = make_engine(model, settings("exact")), 0
        for streams in counts:
            decoding(engine, range(before, streams))
            layer, before = microseconds(engine, streams) / LAYERS, streams
            print(f"{name:16} {streams:3} streams: {layer:6.1f} us a layer", flush=True)


def experts_read(model: Model, counts: list[int]) -> None:
    """How many different experts a layer's rows choose, and what reading those alone takes."""
    chosen: list[torch.Tensor] = []
    route = experts_route.route

    def watched(*given: Any, **named: Any) -> Any:
        made = route(*given, **named)
        chosen.append(made.experts)
        return made

    with patch.object(experts, "route", watched):
        engine, before = make_engine(model, replace(settings("exact"), cuda_graphs="off")), 0
        for streams in counts:
            decoding(engine, range(before, streams))
            torch.cuda.synchronize()
            last = [len(torch.unique(each)) for each in chosen[-LAYERS:]]
            mean, before = sum(last) / LAYERS, streams
            least = (OF_ATTENTION + mean * OF_EXPERT) / ROOFLINE * 1e6
            print(f"{streams:3} streams: {mean:.1f} experts a layer; Qwen3-30B's then take {least:.1f} us", flush=True)
            chosen.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "variants", nargs="*", default=list(VARIANTS), metavar="VARIANT", help=f"of {', '.join(VARIANTS)}"
    )
    parser.add_argument("--shape", default=SHAPE, metavar="NAME:TYPE", help=f"of what model ({SHAPE})")
    parser.add_argument("--streams", default="1,4,16,64", metavar="N,N", help="rising row counts (1,4,16,64)")
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.streams.split(",")]
    name, _, kind = arguments.shape.partition(":")
    SHAPES[f"{name}-short"] = short = replace(SHAPES[name], layers=LAYERS, vocabulary=VOCABULARY)
    model = load_model(Path(f"shape:{name}-short:{kind}"), settings("exact"))
    if short.mixture:
        experts_read(model, counts)
    for each in arguments.variants:
        measure(model, each, counts)


if __name__ == "__main__":
    main()
