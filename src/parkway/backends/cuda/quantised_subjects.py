"""Adversarial inputs for the bit check of quantised products: any bits as weights, and rows whose sums show any order.

Scales and activations have wide exponents and either sign, and the second half of every sum cancels the first, so what
is left is the rounding of the order in which it was added. Some rows are strangers that hold infinities and NaN; what
lies around the rows is NaN. Row counts are such that every tile of rows is met, each beside a few of its rows; more
rows than the kernels take at once are multiplied by the decoded matrix. Sums are of one split and of several.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from parkway.backends import Activation
from parkway.backends.cuda import linear as dense
from parkway.backends.cuda import linear_config, nvrtc, quantised_many
from parkway.backends.cuda.launch import has_warpgroups
from parkway.backends.cuda.linear_config import GATES, LinearConfig
from parkway.backends.cuda.linear_subjects import wide
from parkway.backends.cuda.quantised import QuantMatrix, gated, linear, pack
from parkway.backends.cuda.quantised_config import MAX_ROWS, QuantConfig, candidates, every_candidate, lines, splits
from parkway.backends.cuda.quantised_pack import LAYOUTS, TILE_COLUMNS

_ROWS = (64, 30, 12, 4)
_MANY_ROWS = MAX_ROWS + 6
_OUTPUTS = 203
_SHAPES: tuple[tuple[int, tuple[int, ...]], ...] = (
    (2 * TILE_COLUMNS, (*_ROWS, _MANY_ROWS)),
    (10 * TILE_COLUMNS, (*_ROWS, _MANY_ROWS)),
    (40 * TILE_COLUMNS, _ROWS[2:]),
)
"""Columns, and of how many rows: one split, several, and more tiles than a window of activations holds."""
_STRANGERS = (3, 11, 45)
_MARGIN = 64
"""NaN columns right of the last one."""


@dataclass(frozen=True, slots=True)
class QuantSubject:
    """One product. `matrices`: one, or gate and up. A configuration of dense products is for the decoded matrix."""

    name: str
    candidates: Sequence[QuantConfig | LinearConfig]
    x: torch.Tensor
    matrices: tuple[QuantMatrix, ...]
    residual: torch.Tensor | None = None
    out_dtype: torch.dtype = torch.bfloat16
    activation: Activation = "silu"

    @property
    def rows(self) -> int:
        return len(self.x)

    @property
    def parts(self) -> int:
        return splits(self.matrices[0].rows, self.matrices[0].columns, len(self.matrices))

    def suits(self, config: QuantConfig | LinearConfig, rows: int) -> bool:
        """Whether it is ever used for so many rows."""
        if isinstance(config, LinearConfig):
            return True
        return rows <= MAX_ROWS and config in candidates(rows, self.matrices[0].type, len(self.matrices), self.parts)

    def output(self, config: QuantConfig | LinearConfig, rows: slice) -> torch.Tensor:
        """The bits of those rows, as integers; those of strangers are 0."""
        x, first = self.x[rows], self.matrices[0]
        residual = None if self.residual is None else self.residual[rows]
        if isinstance(config, LinearConfig):
            made = self._by_decoded(config, x, residual)
        elif len(self.matrices) == 2:
            made = gated(x, first, self.matrices[1], config, activation=self.activation)
        else:
            made = linear(x, first, config, bias=first.bias, residual=residual, out_dtype=self.out_dtype)
        bits = made.view(torch.int16 if made.dtype == torch.bfloat16 else torch.int32)
        return bits * torch.isfinite(x).all(dim=1, keepdim=True)

    def _by_decoded(self, config: LinearConfig, x: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
        def product(x: torch.Tensor, weight: torch.Tensor, total: torch.Tensor | None) -> torch.Tensor:
            return dense.linear(x, weight, config, residual=total, out_dtype=torch.float32)

        def sums(matrix: QuantMatrix) -> torch.Tensor:
            return quantised_many.sums(x, matrix, self.parts, x.new_empty(matrix.rows * matrix.columns), product)

        first, *second = self.matrices
        up = sums(second[0]) if second else None
        how: dict[str, Any] = {"gate": GATES[self.activation]} if second else {"bias": first.bias, "residual": residual}
        return quantised_many.finished(sums(first), up, out_dtype=self.out_dtype, **how)


def compile_all(types: Sequence[str]) -> None:
    """Compiles what the candidates of these types need and the cache folder does not have, side by side."""
    architecture = nvrtc.architecture()
    with ThreadPoolExecutor() as pool:
        todo = [line for type_name in types for line in lines(type_name)]
        list(pool.map(lambda line: nvrtc.kept("quantised.cu", line, architecture), todo))


def subjects(
    device: torch.device, seed: int, types: Sequence[str] = tuple(LAYOUTS), activation: Activation = "silu"
) -> list[QuantSubject]:
    """Both operations with all their epilogues, for matrices of these types."""
    if device.type == "cuda":
        compile_all(types)
    chance = torch.Generator(device).manual_seed(seed)
    return [
        subject
        for type_name in types
        for shape in _SHAPES
        for subject in _of_type(type_name, *shape, activation, chance)
    ]


def _of_type(
    type_name: str, columns: int, heights: Sequence[int], activation: Activation, chance: torch.Generator
) -> list[QuantSubject]:
    bias = wide(chance, (_OUTPUTS,)).float()
    first, second = (
        pack("drawn", type_name, wide_blocks(type_name, chance, _OUTPUTS, columns), columns, chance.device, each)
        for each in (bias, None)
    )
    plain, pair = (every_candidate(type_name, count, splits(_OUTPUTS, columns, count)) for count in (1, 2))
    decoded = linear_config.candidates(_MANY_ROWS, columns, streams=has_warpgroups())
    decoded = list(dict.fromkeys([decoded[0], decoded[-1]]))
    made = []
    for rows in heights:
        x, residual = _strange_rows(chance, rows, columns), wide(chance, (rows, _OUTPUTS))
        many = decoded if rows > MAX_ROWS else []
        made += [
            QuantSubject("linear", [*many, *plain], x, (first,), residual, torch.float32),
            QuantSubject("linear", [*many, *plain], x, (second,)),
            QuantSubject("gated", [*many, *pair], x, (first, second), activation=activation),
        ]
    return made


def wide_blocks(type_name: str, chance: torch.Generator, rows: int, columns: int) -> npt.NDArray[np.uint8]:
    """Raw rows uint8 [rows, row_bytes]: any bits, but finite scales; the second half is the first one's negative."""
    kind = LAYOUTS[type_name]
    shape = rows, columns // 2 // kind.block_columns
    drawn = torch.randint(0, 256, (*shape, kind.block_bytes), generator=chance, device=chance.device)
    blocks = drawn.to("cpu", torch.uint8).numpy()
    for at in kind.halves:
        scales = wide(chance, shape).float().clamp(-(2.0**12), 2.0**12).to("cpu", torch.float16)
        blocks[..., at : at + 2] = scales.numpy()[..., None].view(np.uint8)
    negative = np.roll(blocks, TILE_COLUMNS // kind.block_columns, axis=1)
    if type_name == "MXFP4":
        for each in (blocks, negative):  # the exponents are those of 2^-16 … 2^15
            each[..., 0] = each[..., 0] % 32 + 112
        negative[..., 1:] ^= 0x88
    for at in kind.halves:
        negative[..., at + 1] ^= 128
    return np.concatenate([blocks, negative], axis=1).reshape(rows, -1)


def _strange_rows(chance: torch.Generator, rows: int, columns: int) -> torch.Tensor:
    """Rows [rows, columns] inside NaN, some of them strangers; the second half is the first one in another order."""
    around = torch.full((rows, columns + _MARGIN), torch.nan, dtype=torch.bfloat16, device=chance.device)
    half = wide(chance, (rows, columns // 2))
    x = around[:, :columns].copy_(torch.cat([half, half.roll(TILE_COLUMNS, dims=1)], dim=1))
    for at, row in enumerate(row for row in _STRANGERS if row < rows):
        x[row, at::7] = (torch.inf, -torch.inf, torch.nan)[at % 3]
    return x
