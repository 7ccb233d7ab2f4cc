"""Which tiles a matrix product may be computed in. Every choice gives the same bits; they differ in speed alone."""

from collections.abc import Mapping
from typing import NamedTuple

from parkway.backends import Activation

PLAIN, STREAM = range(2)
"""Kernels: `linear_plain`, `linear_stream`."""
GATES: Mapping[Activation, int] = {"silu": 1, "gelu": 2, "clamped": 3}
"""What kernels call an activation; 0 where nothing is gated."""


class LinearConfig(NamedTuple):
    """A kernel, the rows x outputs of its tiles (outputs of each matrix, if there are two), and inputs of a step.

    `warps` multiply; `stages` steps are loaded ahead. Of STREAM: so many `programs` run on a multiprocessor, and `band`
    tiles of rows are visited before the next outputs.
    """

    kernel: int
    rows: int
    outputs: int
    inputs: int
    warps: int
    stages: int
    programs: int = 1
    band: int = 1


class _Table(NamedTuple):
    """The candidates for up to so many rows: of one matrix, and of two."""

    rows: float
    one: tuple[LinearConfig, ...]
    two: tuple[LinearConfig, ...]


_FEW = _Table(
    16,
    (
        LinearConfig(PLAIN, 16, 64, 128, 4, 5),
        LinearConfig(PLAIN, 16, 32, 128, 4, 7),
        LinearConfig(PLAIN, 16, 32, 128, 4, 5),
        LinearConfig(PLAIN, 16, 32, 256, 4, 4),
        LinearConfig(PLAIN, 16, 16, 256, 2, 6),
        LinearConfig(PLAIN, 16, 16, 256, 4, 6),
        LinearConfig(STREAM, 64, 32, 128, 4, 9),
    ),
    (
        LinearConfig(PLAIN, 16, 32, 128, 4, 4),
        LinearConfig(PLAIN, 16, 32, 256, 4, 3),
    ),
)
_SOME = _Table(
    64,
    (
        LinearConfig(STREAM, 64, 64, 128, 4, 7),
        LinearConfig(STREAM, 64, 32, 128, 4, 9),
        LinearConfig(STREAM, 64, 64, 64, 4, 14),
        LinearConfig(STREAM, 64, 128, 64, 4, 8),
        LinearConfig(PLAIN, 64, 64, 128, 4, 4),
    ),
    (
        LinearConfig(STREAM, 64, 32, 128, 4, 7),
        LinearConfig(STREAM, 64, 32, 64, 4, 14),
        LinearConfig(STREAM, 64, 64, 128, 4, 4),
        LinearConfig(PLAIN, 64, 32, 128, 4, 4),
    ),
)
_MANY = _Table(
    512,
    (
        LinearConfig(STREAM, 128, 128, 64, 8, 6, band=16),
        LinearConfig(STREAM, 64, 64, 128, 4, 7, band=16),
        LinearConfig(STREAM, 128, 64, 64, 8, 8, band=16),
        LinearConfig(STREAM, 64, 128, 64, 4, 8, band=16),
        LinearConfig(STREAM, 64, 256, 64, 4, 5, band=16),
        LinearConfig(PLAIN, 128, 128, 64, 8, 4),
    ),
    (
        LinearConfig(STREAM, 128, 128, 64, 8, 4, band=16),
        LinearConfig(STREAM, 128, 64, 64, 8, 6, band=16),
        LinearConfig(STREAM, 64, 64, 64, 4, 8, band=16),
        LinearConfig(PLAIN, 128, 128, 64, 8, 3),
    ),
)
_MOST = _Table(
    float("inf"),
    (
        LinearConfig(STREAM, 128, 256, 64, 8, 4, band=8),
        LinearConfig(STREAM, 128, 256, 64, 8, 4, band=16),
        LinearConfig(STREAM, 256, 128, 64, 8, 4, band=8),
        LinearConfig(STREAM, 128, 128, 64, 8, 6, band=16),
        LinearConfig(PLAIN, 128, 128, 64, 8, 4),
    ),
    (
        LinearConfig(STREAM, 128, 128, 64, 8, 4, band=8),
        LinearConfig(STREAM, 128, 64, 64, 8, 6, band=16),
        LinearConfig(PLAIN, 128, 128, 64, 8, 3),
    ),
)
_TABLES = (_FEW, _SOME, _MANY, _MOST)


def candidates(rows: int, inputs: int, *, matrices: int = 1, streams: bool) -> list[LinearConfig]:
    """Configurations worth timing for up to `rows` rows; the first is a good one without timing.

    `matrices` (two if gated) of `inputs` columns multiply the rows at once. `streams`: whether STREAM runs here. It
    loads rows that begin at multiples of 16 bytes.
    """
    table = next(table for table in _TABLES if rows <= table.rows)
    return _runnable(table.one if matrices == 1 else table.two, streams and inputs % 8 == 0)


def every_candidate(*, matrices: int = 1, streams: bool) -> list[LinearConfig]:
    """All that `candidates` may ever name."""
    known = (config for table in _TABLES for config in (table.one if matrices == 1 else table.two))
    return _runnable(tuple(dict.fromkeys(known)), streams)


def _runnable(configs: tuple[LinearConfig, ...], streams: bool) -> list[LinearConfig]:
    return [config for config in configs if streams or config.kernel == PLAIN]
