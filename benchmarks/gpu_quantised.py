"""Quantised matrices on a GPU: decoded bits, bits and error of every candidate, time against the bytes; prints a table.

The shapes are those of an 8B model. Times are medians over graphs of launches on matrices in turn, more of them than
the cache holds; a share is of the file's bytes at the bandwidth that was measured on an H200. `--few`: only times, of 1
to 8 rows, launched early as in a step. Types named behind it are measured in place of the usual ones.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from benchmarks.gpu_timing import microseconds
from parkway.backends.bit_check import check
from parkway.backends.cuda import linear, linear_config, quantised, quantised_many
from parkway.backends.cuda.launch import has_warpgroups
from parkway.backends.cuda.linear_config import GATES, LinearConfig
from parkway.backends.cuda.quantised import QuantConfig, QuantMatrix
from parkway.backends.cuda.quantised_pack import LAYOUTS
from parkway.backends.cuda.quantised_subjects import compile_all, subjects

TYPES = ("Q4_K", "Q6_K", "Q8_0")
ROWS = (1, 4, 16, 64)
FEW = (1, 2, 4, 8)
BEST = 7
BYTES_PER_SECOND = 4.3e12
CACHE_BYTES = 60e6
LAYERS = 36
OTHER_SECONDS = 0.5e-3
"""Of a decode step: attention and small kernels."""
_SIZES = {
    "Q5_0": 2e-3,
    "Q5_1": 2e-3,
    "Q8_0": 3e-4,
    "Q2_K": 1e-3,
    "Q3_K": 5e-4,
    "Q4_K": 1e-4,
    "Q5_K": 5e-5,
    "Q6_K": 2e-5,
    "IQ4_NL": 4e-4,
    "IQ4_XS": 2e-5,
}
"""Of the largest scale, where it is another than 4e-3."""
WINDOW = 30.0
"""Seconds within which other types than the first are still timed."""


class Shape(NamedTuple):
    """`matrices` of outputs x inputs."""

    name: str
    outputs: int
    inputs: int
    matrices: int = 1

    def file_bytes(self, type_name: str) -> float:
        kind = LAYOUTS[type_name]
        return self.outputs * self.inputs * self.matrices / kind.block_columns * kind.block_bytes


LAYER = (Shape("qkv", 6144, 4096), Shape("o", 4096, 4096), Shape("gated", 12288, 4096, 2), Shape("down", 4096, 12288))
HEAD = Shape("head", 151936, 4096)


def raw_rows(type_name: str, rows: int, columns: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Any quants with scales such that weights are about 0.02 large: raw rows uint8 [rows, row_bytes]."""
    kind, chance = LAYOUTS[type_name], np.random.default_rng(seed)
    blocks = chance.integers(0, 256, (rows, columns // kind.block_columns, kind.block_bytes), np.uint8)
    size = _SIZES.get(type_name, 4e-3)
    if type_name == "MXFP4":
        blocks[..., 0] = chance.integers(119, 122, blocks.shape[:2], np.uint8)
    for at in kind.halves:
        scales = (chance.random(blocks.shape[:2]) * size).astype(np.float16)
        blocks[..., at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def drawn(type_name: str, rows: int, columns: int, seed: int = 0) -> QuantMatrix:
    return quantised.pack("drawn", type_name, raw_rows(type_name, rows, columns, seed), columns, torch.device("cuda"))


def product(x: torch.Tensor, matrices: Sequence[QuantMatrix], config: QuantConfig, pdl: int = 0) -> torch.Tensor:
    if len(matrices) == 2:
        return quantised.gated(x, matrices[0], matrices[1], config, pdl=pdl)
    return quantised.linear(x, matrices[0], config, pdl=pdl)


def decoding(types: Sequence[str]) -> None:
    """Decoded bits and their error against GGUF's decoder, and how fast. Bits of Q4_K are others by design."""
    for type_name in types:
        raw = raw_rows(type_name, 509, 2304)
        matrix = quantised.pack("drawn", type_name, raw, 2304, torch.device("cuda"))
        out = torch.empty(509, 2304, dtype=torch.bfloat16, device="cuda")
        quantised.dequantise(matrix, out)
        exact = torch.from_numpy(dequantize(raw, GGMLQuantizationType[type_name])).cuda()
        expected = exact.to(torch.bfloat16)
        tokens = torch.tensor([5, -1, 508], dtype=torch.int32, device="cuda")
        rows = quantised.embed_rows(matrix, tokens, tokens.new_tensor([0, 1, 0]), tokens.new_tensor([9, 77]))
        if type_name in ("Q4_0", "Q3_K"):  # whose zeros have no sign in our kernels
            expected = expected + 0
        pairs = (out, expected), (rows, expected[[5, 77, 508]])
        equal, rows_equal = (torch.equal(made.view(torch.int16), each.view(torch.int16)) for made, each in pairs)
        error = ((out.float() - exact).norm() / exact.norm()).item()
        large = drawn(type_name, 4096, 4096)
        room = torch.empty(4096, 4096, dtype=torch.bfloat16, device="cuda")
        us = microseconds(lambda _, large=large, room=room: quantised.dequantise(large, room), 10)  # type: ignore[misc]
        told = f"bits {equal}, rows by token {rows_equal}, error {error:.2%}, 4096 x 4096 in {us:.1f} us"
        print(f"decode {type_name}: {told}", flush=True)


def sums(x: torch.Tensor, matrix: QuantMatrix, parts: int, config: LinearConfig, room: torch.Tensor) -> torch.Tensor:
    """x Wᵀ in fp32, as many rows are multiplied: by the decoded matrix, split by split."""

    def product(x: torch.Tensor, weight: torch.Tensor, total: torch.Tensor | None) -> torch.Tensor:
        return linear.linear(x, weight, config, residual=total, out_dtype=torch.float32)

    return quantised_many.sums(x, matrix, parts, room, product)


def agreement(types: Sequence[str]) -> None:
    """Every candidate against float64 and, bit for bit, against the way of many rows."""
    for type_name in types:
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        worst = 0.0
        pair = [drawn(type_name, 1000, 4096, seed) for seed in (1, 2)]
        dense, room = (torch.empty(1000 * 4096, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        quantised.dequantise(pair[0], dense.view(1000, 4096))
        config = linear_config.candidates(16, 4096, streams=has_warpgroups())[0]
        for rows in (1, 2, 3, 8, 13, 16, 29, 64):
            x = torch.randn(rows, 4096, device="cuda", dtype=torch.bfloat16)
            exact = x.double() @ dense.view(1000, 4096).double().T
            for matrices in (1, 2):
                parts = quantised.splits(1000, 4096, matrices)
                both = [sums(x, each, parts, config, room) for each in pair[:matrices]]
                expected = quantised_many.finished(*both, gate=GATES["silu"] if matrices == 2 else 0)
                for each in quantised.candidates(rows, type_name, matrices, parts):
                    made = product(x, pair[:matrices], each)
                    kind = "window" if each.window else "four warps" if each.four_warps else "one warp"
                    tally = counts[f"{kind} x {matrices}"]
                    tally[0] += torch.equal(made, expected)
                    tally[1] += 1
                    if matrices == 1:
                        worst = max(worst, float(((made.double() - exact).norm() / exact.norm()).item()))
        told = ", ".join(f"{name} {same}/{of}" for name, (same, of) in counts.items())
        print(f"agree {type_name}: same bits as bf16: {told}; error {worst:.1e}", flush=True)


def turns(x: torch.Tensor, sets: Sequence[Sequence[QuantMatrix]], config: QuantConfig, pdl: int = 0) -> float:
    """Microseconds of a product, of each set of matrices in turn."""
    return microseconds(lambda i: product(x, sets[i % len(sets)], config, pdl), 2 * len(sets))


def name(config: QuantConfig) -> str:
    return ".".join(map(str, config))


class Timing(NamedTuple):
    """Microseconds by configuration, of the best one with dependent launches, of the file's bytes."""

    shape: Shape
    type_name: str
    rows: int
    by_config: dict[QuantConfig, float]
    dependent: float
    least: float

    @property
    def best(self) -> QuantConfig:
        return min(self.by_config, key=lambda config: self.by_config[config])

    @property
    def us(self) -> float:
        return min(self.dependent, self.by_config[self.best])

    def __str__(self) -> str:
        us = self.by_config[self.best]
        return (
            f"{self.type_name} {self.shape.name:5} {self.rows:3} rows: {us:6.1f} us, share {self.least / us:.2f}; "
            f"dependent {self.dependent:6.1f}, {self.least / self.dependent:.2f}  {tuple(self.best)}"
        )

    def all(self) -> str:
        told = ", ".join(f"{name(config)} {us:.1f}" for config, us in self.by_config.items())
        return f"{self.type_name} {self.shape.name} {self.rows}: {told}"


Sets = Sequence[Sequence[QuantMatrix]]


def by_config(x: torch.Tensor, sets: Sets, pdl: int = 0) -> dict[QuantConfig, float]:
    first, count = sets[0][0], len(sets[0])
    every = quantised.candidates(len(x), first.type, count, quantised.splits(first.rows, first.columns, count))
    return {config: turns(x, sets, config, pdl) for config in every}


def copies(shape: Shape, type_name: str, first: QuantMatrix) -> Sets:
    """More of the matrix than the cache holds."""
    count = max(2, int(3 * CACHE_BYTES / shape.file_bytes(type_name)) + 1)
    return [
        [QuantMatrix(type_name, first.rows, first.columns, first.packed.clone()) for _ in range(shape.matrices)]
        for _ in range(count)
    ]


def timed(shape: Shape, type_name: str, first: QuantMatrix) -> list[Timing]:
    """All row counts. `first`: the matrix that the others are copies of."""
    least = shape.file_bytes(type_name) / BYTES_PER_SECOND * 1e6
    sets = copies(shape, type_name, first)
    made = []
    for rows in ROWS:
        x = torch.randn(rows, shape.inputs, device="cuda", dtype=torch.bfloat16)
        times = by_config(x, sets)
        dependent = turns(x, sets, min(times, key=lambda config: times[config]), True)
        made.append(Timing(shape, type_name, rows, times, dependent, least))
    return made


def many_rows() -> None:
    """Decoding and multiplying 512 rows, with the shape's splits and without."""
    for shape in (*LAYER[:2], LAYER[3]):
        matrix, x = drawn("Q4_K", *shape[1:3]), torch.randn(512, shape.inputs, device="cuda", dtype=torch.bfloat16)
        room = torch.empty(shape.outputs * shape.inputs, dtype=torch.bfloat16, device="cuda")
        config = linear_config.candidates(512, shape.inputs, streams=has_warpgroups())[0]
        for parts in (1, quantised.splits(*shape[1:3])):
            us = microseconds(partial(many, x, matrix, parts, config, room), 5)
            print(f"512 rows {shape.name}, {parts} splits: {us:.0f} us", flush=True)


def many(x: torch.Tensor, matrix: QuantMatrix, parts: int, config: LinearConfig, room: torch.Tensor, _: int) -> None:
    quantised_many.finished(sums(x, matrix, parts, config, room))


def summary(timings: Sequence[Timing]) -> None:
    """Every shape, the layer, and what that makes of a whole step."""
    first = timings[0].type_name
    for timing in timings:
        if timing.type_name == first:
            print(timing.all())
    for timing in timings:
        print(timing)
    for rows in ROWS:
        some = [timing for timing in timings if timing.type_name == first and timing.rows == rows]
        layer = [timing for timing in some if timing.shape in LAYER]
        head = [timing for timing in some if timing.shape == HEAD]
        least, us = sum(t.least for t in layer), sum(t.us for t in layer)
        step = LAYERS * us + sum(t.us for t in head) + OTHER_SECONDS * 1e6
        share = (LAYERS * least + sum(t.least for t in head)) / step
        print(
            f"{first}, {rows} rows: a layer {us:.1f} us, share {least / us:.2f}; step {step:.0f} us, share {share:.2f}"
        )


def few_rows(type_name: str) -> None:
    """The best configurations of every shape for few rows, and what a layer takes with the best of each."""
    started = perf_counter()
    compile_all([type_name])
    print(f"{torch.cuda.get_device_name()}; compiled in {perf_counter() - started:.1f} s", flush=True)
    layer = dict.fromkeys(FEW, 0.0)
    for shape in (*LAYER, HEAD):
        sets = copies(shape, type_name, drawn(type_name, shape.outputs, shape.inputs))
        for rows in FEW:
            x = torch.randn(rows, shape.inputs, device="cuda", dtype=torch.bfloat16)
            times = by_config(x, sets, pdl=True)
            best = sorted(times, key=lambda config: times[config])
            told = ", ".join(f"{name(config)} {times[config]:.1f}" for config in best[:BEST])
            old = min(us for config, us in times.items() if not config.window)
            print(f"{type_name} {shape.name:5} {rows} rows: {told}; without window {old:.1f}", flush=True)
            layer[rows] += times[best[0]] if shape != HEAD else 0
    bytes_us = sum(shape.file_bytes(type_name) for shape in LAYER) / BYTES_PER_SECOND * 1e6
    for rows, us in layer.items():
        print(f"{type_name} {rows} rows: a layer's matrices {us:.1f} us, share {bytes_us / us:.2f}")
    print(f"{perf_counter() - started:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", action="store_true", help="only times, of 1 to 8 rows")
    parser.add_argument("types", nargs="*", default=None, help="of GGUF, such as MXFP4")
    given = parser.parse_args()
    if given.few:
        for type_name in given.types or TYPES[:1]:
            few_rows(type_name)
    else:
        everything(given.types or TYPES)


def everything(types: Sequence[str]) -> None:
    started = perf_counter()
    compile_all(types)
    print(f"{torch.cuda.get_device_name()}; compiled in {perf_counter() - started:.1f} s", flush=True)
    decoding(types)
    agreement(types)
    verdict = check(subjects(torch.device("cuda"), 0, types), torch.equal)
    print(f"bit check: {verdict}, {verdict.seconds:.1f} s", flush=True)
    many_rows()
    timings: list[Timing] = []
    for type_name in types:
        for shape in (*LAYER, HEAD):
            if type_name == types[0] or perf_counter() - started < WINDOW:
                timings += timed(shape, type_name, drawn(type_name, shape.outputs, shape.inputs))
    summary(timings)
    print(f"{perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
