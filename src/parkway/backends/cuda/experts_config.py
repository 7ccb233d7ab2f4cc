"""Which tiles the products of a mixture of experts may be computed in. Every choice gives the same bits."""

from typing import NamedTuple

PLAIN, STREAM = range(2)
"""Kernels: `experts_plain`, `experts_stream`."""
FEW_ROWS = 64
"""Up to so many rows are few: blocks that route them are short, and quantised experts multiply them as they are."""
REGISTERS = 168
"""A thread's, of STREAM."""


class Tiles(NamedTuple):
    """Outputs of a program's tile (of each matrix, if there are two), inputs of a step, warps, steps loaded ahead."""

    outputs: int
    inputs: int
    warps: int
    stages: int


class ExpertsConfig(NamedTuple):
    """A kernel, most rows of one expert that a program has, and the tiles of both products.

    All numbers stand side by side, as they are kept on disk: those of gate and up, then those of down.
    """

    kernel: int
    rows: int
    up_outputs: int
    up_inputs: int
    up_warps: int
    up_stages: int
    down_outputs: int
    down_inputs: int
    down_warps: int
    down_stages: int

    @property
    def up(self) -> Tiles:
        return Tiles(self.up_outputs, self.up_inputs, self.up_warps, self.up_stages)

    @property
    def down(self) -> Tiles:
        return Tiles(self.down_outputs, self.down_inputs, self.down_warps, self.down_stages)


_FEW = (
    ExpertsConfig(PLAIN, 64, 32, 128, 4, 5, 64, 128, 4, 5),
    ExpertsConfig(PLAIN, 64, 16, 256, 4, 4, 32, 256, 4, 3),
    ExpertsConfig(PLAIN, 64, 32, 256, 4, 3, 32, 128, 4, 6),
    ExpertsConfig(PLAIN, 64, 64, 128, 4, 4, 64, 256, 4, 3),
    ExpertsConfig(PLAIN, 64, 64, 64, 4, 6, 128, 64, 4, 6),
    ExpertsConfig(STREAM, 64, 32, 128, 4, 6, 32, 128, 4, 9),
    ExpertsConfig(STREAM, 64, 32, 128, 4, 6, 64, 128, 4, 6),
)
_SOME = (
    ExpertsConfig(PLAIN, 64, 64, 64, 4, 6, 128, 64, 4, 6),
    ExpertsConfig(PLAIN, 64, 32, 128, 4, 5, 64, 128, 4, 5),
    ExpertsConfig(STREAM, 64, 64, 128, 4, 4, 64, 128, 4, 6),
    ExpertsConfig(STREAM, 64, 32, 128, 4, 6, 64, 128, 4, 6),
    ExpertsConfig(STREAM, 64, 64, 64, 4, 8, 128, 64, 4, 8),
    ExpertsConfig(PLAIN, 64, 64, 128, 4, 3, 64, 128, 4, 5),
    ExpertsConfig(PLAIN, 64, 64, 128, 4, 4, 128, 128, 4, 4),
)
_MANY = (
    ExpertsConfig(STREAM, 128, 128, 64, 8, 4, 256, 64, 8, 4),
    ExpertsConfig(STREAM, 64, 128, 64, 4, 5, 128, 64, 4, 8),
    ExpertsConfig(STREAM, 64, 64, 64, 4, 8, 128, 64, 4, 8),
    ExpertsConfig(STREAM, 128, 64, 64, 8, 6, 128, 64, 8, 6),
    ExpertsConfig(PLAIN, 64, 64, 64, 4, 6, 128, 64, 4, 6),
    ExpertsConfig(PLAIN, 128, 64, 64, 4, 4, 128, 64, 4, 4),
)
_EDGE = 16
"""Rows up to which weights must come to many programs at once."""


def candidates(rows: int, *, streams: bool) -> list[ExpertsConfig]:
    """Configurations worth timing for up to `rows` rows; the first is a good one without timing.

    `streams`: whether STREAM runs here.
    """
    table = _FEW if rows <= _EDGE else _SOME if rows <= FEW_ROWS else _MANY
    return [config for config in table if streams or config.kernel == PLAIN]


def every_candidate(*, streams: bool) -> list[ExpertsConfig]:
    """All that `candidates` may ever name."""
    return list(dict.fromkeys(config for rows in (1, 64, 65) for config in candidates(rows, streams=streams)))
