"""Matrix products on a GPU: bits of every candidate, error against float64, time beside cuBLAS; prints a table.

The shapes are those of an 8B model. Times are medians over graphs of launches on weights in turn, more of them than
the cache holds.
"""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter
from typing import NamedTuple

import torch

from benchmarks.gpu_timing import microseconds
from parkway.backends.bit_check import check
from parkway.backends.cuda.launch import has_warpgroups
from parkway.backends.cuda.linear import gated, linear
from parkway.backends.cuda.linear_config import PLAIN, LinearConfig, candidates, every_candidate
from parkway.backends.cuda.linear_subjects import subjects

ROWS = (1, 4, 16, 64, 512, 4096)
FEW_ROWS = 64
LAYERS = 36
CACHE_BYTES = 50e6


class Shape(NamedTuple):
    """`matrices` of outputs x inputs; the head's products are fp32."""

    name: str
    outputs: int
    inputs: int
    matrices: int = 1

    @property
    def bytes(self) -> int:
        return 2 * self.outputs * self.inputs * self.matrices

    @property
    def out_dtype(self) -> torch.dtype:
        return torch.float32 if self.name == "head" else torch.bfloat16

    def weights(self, outputs: int | None = None) -> list[torch.Tensor]:
        shape = (outputs or self.outputs, self.inputs)
        make = torch.Generator("cuda").manual_seed(self.outputs)
        return [
            torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(0, 0.02, generator=make)
            for _ in range(self.matrices)
        ]


LAYER = (Shape("qkv", 6144, 4096), Shape("o", 4096, 4096), Shape("gated", 12288, 4096, 2), Shape("down", 4096, 12288))
HEAD = Shape("head", 151936, 4096)


class Line(NamedTuple):
    """One shape and row count: microseconds, and what was found about bits and error."""

    shape: Shape
    rows: int
    library: float
    ours: dict[LinearConfig, float]
    equal: bool
    error: float
    library_error: float

    def __str__(self) -> str:
        best = min(self.ours, key=lambda config: self.ours[config])
        bits = "equal" if self.equal else "DIFFER"
        return (
            f"{self.shape.name:6}{self.rows:6}  {self._rate(self.ours[best])}  x{self.library / self.ours[best]:.2f} of"
            f" cuBLAS's {self._rate(self.library)}  bits {bits}  error {self.error:.1e} ({self.library_error:.1e})\n"
            + "".join(f"         {_name(config)} {us:.1f}" for config, us in self.ours.items())
        )

    def _rate(self, us: float) -> str:
        if self.rows <= FEW_ROWS:
            return f"{us:7.1f} us {self.shape.bytes / us / 1e6:5.2f} TB/s"
        return f"{us:7.1f} us {self.rows * self.shape.bytes / us / 1e6:4.0f} TFLOP/s"


def _name(config: LinearConfig) -> str:
    kind = "plain" if config.kernel == PLAIN else "stream"
    return f"{kind} {config.rows}x{config.outputs}x{config.inputs} s{config.stages} p{config.programs} b{config.band}:"


def _product(shape: Shape, x: torch.Tensor, weights: Sequence[torch.Tensor], config: LinearConfig) -> torch.Tensor:
    if shape.matrices == 2:
        return gated(x, weights[0], weights[1], config, pdl=True)
    return linear(x, weights[0], config, out_dtype=shape.out_dtype, pdl=True)


def _compile(shape: Shape, config: LinearConfig) -> None:
    """Leaves in Triton's cache what a configuration compiles to."""
    x = torch.zeros(1, shape.inputs, dtype=torch.bfloat16, device="cuda")
    _product(shape, x, shape.weights(256), config)
    torch.cuda.synchronize()


def _compile_subject(at: int, config: LinearConfig) -> None:
    subjects(torch.device("cuda"), 1)[at].output(config, slice(0, 1))
    torch.cuda.synchronize()


def _compile_all() -> None:
    """Side by side, in processes."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        jobs = [
            pool.submit(_compile, shape, config)
            for shape in (LAYER[0], LAYER[2], HEAD)
            for config in every_candidate(matrices=shape.matrices, streams=has_warpgroups())
        ]
        jobs += [
            pool.submit(_compile_subject, at, config)
            for at, subject in enumerate(subjects(torch.device("cuda"), 1))
            for config in subject.candidates
        ]
        for job in jobs:
            job.result()


def _exact(shape: Shape, x: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    products = [torch.cat([x.double() @ part.double().T for part in weight.split(8192)], dim=1) for weight in weights]
    return products[0] if len(products) == 1 else torch.nn.functional.silu(products[0]) * products[1]


def _error(made: torch.Tensor, exact: torch.Tensor) -> float:
    return float((made.double() - exact).norm() / exact.norm())


def _line(shape: Shape, rows: int) -> Line:
    copies = max(2, int(6 * CACHE_BYTES // shape.bytes))
    weights = [shape.weights() for _ in range(copies)]
    together = [torch.cat(each) for each in weights]
    x = torch.randn(rows, shape.inputs, device="cuda").bfloat16()
    configs = candidates(rows, shape.inputs, matrices=shape.matrices, streams=has_warpgroups())
    made = _product(shape, x, weights[0], configs[0])
    some = slice(rows // 2, rows // 2 + 5)
    equal = all(
        torch.equal(_product(shape, x, weights[0], config), made)
        and torch.equal(_product(shape, x[some], weights[0], config), made[some])
        for config in configs
    )
    sample = slice(0, 16)
    exact = _exact(shape, x[sample], weights[0])
    library = torch.mm(x[sample], together[0].T)
    if shape.matrices == 2:
        library = torch.nn.functional.silu(library[:, : shape.outputs]) * library[:, shape.outputs :]

    def launch(config: LinearConfig) -> Callable[[int], torch.Tensor]:
        return lambda i: _product(shape, x, weights[i % copies], config)

    count = 4 if rows > FEW_ROWS else -(-24 // copies) * copies
    return Line(
        shape,
        rows,
        microseconds(lambda i: torch.mm(x, together[i % copies].T), count),
        {config: microseconds(launch(config), count) for config in configs},
        equal,
        _error(made[sample], exact),
        _error(library, exact),
    )


def _step(lines: Sequence[Line], rows: int) -> str:
    """All products of a decode step of an 8B model, each in its fastest configuration, as one graph."""
    best = {line.shape: min(line.ours, key=lambda c: line.ours[c]) for line in lines if line.rows == rows}
    layers = [[(shape, shape.weights()) for shape in LAYER] for _ in range(LAYERS)]
    products = [*(product for layer in layers for product in layer), (HEAD, HEAD.weights())]
    inputs = {width: torch.randn(rows, width, device="cuda").bfloat16() for width in (4096, 12288)}

    def ours(_: int) -> None:
        for shape, weights in products:
            _product(shape, inputs[shape.inputs], weights, best[shape])

    def library(_: int) -> None:
        for shape, weights in products:
            for weight in weights:
                torch.mm(inputs[shape.inputs], weight.T)

    total = sum(shape.bytes for shape, _ in products)
    own, librarys = (microseconds(run, 1) / 1e3 for run in (ours, library))
    return (
        f"step of {rows:3} rows, {total / 1e9:.1f} GB: {own:.3f} ms {total / own / 1e9:.2f} TB/s,"
        f" cuBLAS {librarys:.3f} ms"
    )


def main() -> None:
    started = perf_counter()
    _compile_all()
    compiled = perf_counter()
    verdict = check(subjects(torch.device("cuda"), 1), torch.equal)
    lines = [_line(shape, rows) for shape in (*LAYER, HEAD) for rows in ROWS if shape is not HEAD or rows <= FEW_ROWS]
    steps = [_step(lines, rows) for rows in ROWS if rows <= FEW_ROWS]
    print(torch.cuda.get_device_name(), torch.__version__)
    print(f"compiled in {compiled - started:.0f} s, then {perf_counter() - compiled:.0f} s; bit check: {verdict}")
    print("shape   rows       ours, best candidate")
    print(*lines, *steps, sep="\n")


if __name__ == "__main__":
    main()
