"""Mixtures of experts on the GPU at Qwen3-30B-A3B's shape: the bit check, then every candidate's times.

`python -m benchmarks.gpu_experts [ROWS …]` prints microseconds of one layer and of its parts, and what share of the
memory's speed or how many TFLOP/s that is.
"""

import subprocess
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from benchmarks.gpu_timing import microseconds
from parkway.backends import Experts
from parkway.backends.bit_check import check
from parkway.backends.cuda import experts_plain, experts_rows, experts_stream
from parkway.backends.cuda.chooser import bucket
from parkway.backends.cuda.experts import mixture
from parkway.backends.cuda.experts_config import PLAIN, ExpertsConfig, candidates
from parkway.backends.cuda.experts_quantised import Rooms
from parkway.backends.cuda.experts_route import Routes, route
from parkway.backends.cuda.experts_stack import Stack
from parkway.backends.cuda.experts_subjects import subjects

COUNT, CHOSEN, WIDTH, FFN = 128, 8, 2048, 768
ROWS = (1, 4, 16, 64, 256, 1024, 4096)
HOW = Experts(COUNT, CHOSEN, None, None, None, None, "all", True)
_COMPILERS, _SHARE = 12, "compile"
DRAWN = 8
"""Different routes, so that no cache holds what one launch read for the next."""
BYTES_PER_SECOND = 4.3e12
Bf16Stacks = tuple[Stack, Stack, Stack]


def main(rows: list[int]) -> None:
    device = torch.device("cuda")
    started = perf_counter()
    _compile_side_by_side()
    print("compiled:", f"{perf_counter() - started:.1f} s", flush=True)
    started = perf_counter()
    print("bit check:", check(subjects(device, 0), torch.equal), f"{perf_counter() - started:.1f} s", flush=True)
    chance = torch.Generator(device).manual_seed(1)
    stacks: Bf16Stacks = (_stack(chance, FFN, WIDTH), _stack(chance, FFN, WIDTH), _stack(chance, WIDTH, FFN))
    for count in rows:
        _measure(count, stacks, chance)


def _compile_side_by_side() -> None:
    """What one process would take minutes for. Compilers keep what they have made."""
    command = [sys.executable, "-m", "benchmarks.gpu_experts", _SHARE]
    processes = [subprocess.Popen([*command, str(share)]) for share in range(_COMPILERS)]
    for process in processes:
        process.wait()


def _compile_share(share: int) -> None:
    runs: list[tuple[Any, Any]] = [
        (each, config) for each in subjects(torch.device("cuda"), 0) for config in each.candidates
    ]
    for each, config in runs[share::_COMPILERS]:
        for rows in (1, each.rows):
            each.output(config, slice(0, rows))


def _stack(chance: torch.Generator, rows: int, columns: int) -> Stack:
    values = torch.empty((COUNT * rows, columns), dtype=torch.bfloat16, device=chance.device)
    return Stack(COUNT, values.normal_(std=columns**-0.5, generator=chance))


def _measure(rows: int, stacks: Bf16Stacks, chance: torch.Generator) -> None:
    x = torch.randn((rows, WIDTH), generator=chance, device=chance.device).bfloat16()
    logits = [torch.randn((rows, COUNT), generator=chance, device=chance.device) for _ in range(DRAWN)]
    used = [len(torch.unique(each.topk(CHOSEN).indices)) for each in logits]
    read = sum(used) / DRAWN * 3 * FFN * WIDTH * 2
    work = rows * CHOSEN * 3 * FFN * WIDTH * 2
    for config in candidates(rows, streams=True):

        def launch(i: int, config: ExpertsConfig = config) -> object:
            return mixture(x, logits[i % DRAWN], HOW, stacks, x, config, Rooms(), pdl=True).rows(pdl=True)

        took = microseconds(launch, DRAWN)
        share, speed = read / took / BYTES_PER_SECOND * 1e6, work / took / 1e6
        parts = " ".join(f"{name} {value:.1f}" for name, value in _parts(x, logits, stacks, config).items())
        print(
            f"{rows} rows: {took:.1f} us, {share:.0%} of memory, {speed:.0f} TFLOP/s: {list(config)}: {parts}",
            flush=True,
        )


def _parts(x: torch.Tensor, logits: list[torch.Tensor], stacks: Bf16Stacks, config: ExpertsConfig) -> dict[str, float]:
    gate, up, down = stacks
    places, tile = len(x) * CHOSEN, config.rows
    routes = [route(each, CHOSEN, of_all=False, tile=tile) for each in logits]
    hidden, results = x.new_empty((places, FFN)), x.new_empty((places, WIDTH))
    hidden.normal_()
    height, spread = min(tile, bucket(len(x))), experts_rows.spread(x, routes[0])

    def product(rows: torch.Tensor, routes: Routes, pair: tuple[Stack, Stack | None], out: torch.Tensor) -> None:
        tiles = config.down if pair[1] is None else config.up
        if config.kernel == PLAIN:
            ordered = pair[1] is None
            experts_plain.launch(rows, routes, *pair, height, tiles, "silu", out, ordered=ordered)
        else:
            experts_stream.launch(rows if pair[1] is None else spread, routes, *pair, tile, tiles, "silu", out)

    parts: dict[str, Callable[[int], object]] = {
        "route": lambda i: route(logits[i % DRAWN], CHOSEN, of_all=False, tile=tile),
        "up": lambda i: product(x, routes[i % DRAWN], (gate, up), hidden),
        "down": lambda i: product(hidden, routes[i % DRAWN], (down, None), results),
        "combine": lambda i: experts_rows.combine(results, routes[i % DRAWN], x),
    }
    if config.kernel != PLAIN:
        parts["spread"] = lambda i: experts_rows.spread(x, routes[i % DRAWN])
    return {name: microseconds(launch, DRAWN) for name, launch in parts.items()}


if __name__ == "__main__":
    if sys.argv[1:2] == [_SHARE]:
        _compile_share(int(sys.argv[2]))
    else:
        main([int(each) for each in sys.argv[1:]] or list(ROWS))
