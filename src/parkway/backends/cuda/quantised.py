"""Products of bf16 rows and quantised matrices, and such matrices' rows as bf16. Kernels: quantised.cu.

Every weight is what the file's format says in float32, rounded once to bf16, or for Q4_K what quants.h says; an output
is an fp32 sum over ascending k for each split of the columns, those added in order, then its epilogue in fp32 and one
rounding. How many splits there are is a constant of the matrix's shape. So the bits are those of `linear` on the
decoded splits, one after the other.
"""

import ctypes as C
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from parkway.backends import Activation
from parkway.backends.cuda import nvrtc, quantised_pack
from parkway.backends.cuda.device import AHEAD
from parkway.backends.cuda.linear_config import GATES
from parkway.backends.cuda.quantised_config import (
    MAX_ROWS,
    QuantConfig,
    blocks,
    candidates,
    entry,
    line,
    shared_bytes,
    split_columns,
    splits,
    threads,
    window,
)
from parkway.backends.cuda.quantised_pack import BAND_ROWS, TILE_COLUMNS

__all__ = [
    "QuantConfig",
    "QuantMatrix",
    "candidates",
    "dequantise",
    "embed_rows",
    "gated",
    "linear",
    "pack",
    "split_columns",
    "splits",
    "stackable",
    "stacked",
]

_SOURCE = "quantised.cu"
_WARPS = 4
"""Of a block that decodes bands."""
_BAND_BYTES = BAND_ROWS * (TILE_COLUMNS + 8) * 2


@dataclass(frozen=True, slots=True, eq=False)
class QuantMatrix:
    """A matrix [rows, columns] in tiles, uint8 [bands, tiles, tile_bytes]; bias fp32 [rows] or None."""

    type: str
    rows: int
    columns: int
    packed: torch.Tensor
    bias: torch.Tensor | None = None

    @property
    def tiles(self) -> int:
        return self.packed.shape[1]

    @property
    def bytes(self) -> int:
        return self.packed.nbytes


class _Product(C.Structure):
    """Its twin is in quantised.cu."""

    _fields_ = [
        ("weights", C.c_void_p * 2),
        *[(name, C.c_void_p) for name in ("x", "bias", "residual", "y")],
        *[(name, C.c_int64) for name in ("x_stride", "residual_stride")],
        *[(name, C.c_int32) for name in ("rows", "columns", "outputs", "tiles", "splits", "gated", "floats")],
        *[(name, C.c_int32) for name in ("group", "depth", "window", "ahead")],
    ]


class _Decoded(C.Structure):
    """Its twin is in quantised.cu."""

    _fields_ = [
        *[(name, C.c_void_p) for name in ("weights", "tokens", "slots", "last", "y")],
        *[(name, C.c_int32) for name in ("rows", "columns", "tiles", "splits")],
    ]


def pack(
    name: str,
    type_name: str,
    raw: npt.NDArray[np.uint8],
    columns: int,
    device: torch.device,
    bias: torch.Tensor | None = None,
) -> QuantMatrix:
    """A tensor's raw rows uint8 [rows, row_bytes] → the device. Raises Unsupported naming the tensor."""
    packed = quantised_pack.packed(name, type_name, raw, columns, device)
    return QuantMatrix(type_name, len(raw), columns, packed, bias)


def stackable(matrices: Sequence[QuantMatrix]) -> bool:
    """Whether they have one type and width, whole bands (but for the last), and all a bias or none."""
    first, biases = matrices[0], [matrix for matrix in matrices if matrix.bias is not None]
    same = all((matrix.type, matrix.columns) == (first.type, first.columns) for matrix in matrices)
    return same and not any(matrix.rows % BAND_ROWS for matrix in matrices[:-1]) and len(biases) in (0, len(matrices))


def stacked(matrices: Sequence[QuantMatrix]) -> QuantMatrix:
    """One matrix with the rows of all, in order. Raises ValueError unless they are stackable."""
    if not stackable(matrices):
        raise ValueError("matrices of several types or widths, or of rows that fill no bands, can't be stacked")
    first, biases = matrices[0], [matrix.bias for matrix in matrices if matrix.bias is not None]
    packed = torch.cat([matrix.packed for matrix in matrices])
    bias = torch.cat(biases) if biases else None
    return QuantMatrix(first.type, sum(matrix.rows for matrix in matrices), first.columns, packed, bias)


def linear(
    x: torch.Tensor,
    matrix: QuantMatrix,
    config: QuantConfig,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    pdl: int = 0,
) -> torch.Tensor:
    """x Wᵀ + bias + residual, `out_dtype` [rows, matrix.rows].

    x bf16 [rows, columns] of up to 64 rows, at any multiple of 8 apart; bias fp32 [matrix.rows]; residual bf16
    [rows, matrix.rows]; out_dtype bf16 or fp32. `pdl`: when the kernel is launched, as `device` numbers it; the one in
    front must not write the weights. Raises ValueError if shapes or types do not fit.
    """
    y = x.new_empty((len(x), matrix.rows), dtype=out_dtype)
    _multiply(x, (matrix,), config, y, bias, residual, pdl)
    return y


def gated(
    x: torch.Tensor,
    gate: QuantMatrix,
    up: QuantMatrix,
    config: QuantConfig,
    *,
    activation: Activation = "silu",
    pdl: int = 0,
) -> torch.Tensor:
    """activation(x Gᵀ) * (x Uᵀ), bf16 [rows, gate.rows]; arguments as in `linear`, gate and up of a type and shape."""
    y = x.new_empty((len(x), gate.rows))
    if (gate.type, gate.rows, gate.columns) != (up.type, up.rows, up.columns):
        raise ValueError(f"{gate.type} and {up.type}: not one type and one shape")
    _multiply(x, (gate, up), config, y, None, None, pdl, GATES[activation])
    return y


def dequantise(matrix: QuantMatrix, out: torch.Tensor, parts: int = 1, *, pdl: int = 0) -> None:
    """Writes the matrix to `out`, bf16 [rows, columns], contiguous; or so many splits of it, one behind the other."""
    if out.shape != (matrix.rows, matrix.columns) or out.dtype != torch.bfloat16 or not out.is_contiguous():
        raise ValueError(f"{out.dtype} {tuple(out.shape)} is no room for {matrix.rows} x {matrix.columns} bf16")
    arguments = _decoded(matrix, out)
    arguments.splits = parts
    kernel = nvrtc.kernel(_SOURCE, entry("Decoded", f"decode_bands<{matrix.type}>", 32 * _WARPS))
    grid = matrix.packed.shape[0], -(-matrix.tiles // _WARPS)
    kernel.launch(grid, 32 * _WARPS, _WARPS * _BAND_BYTES, arguments, pdl=pdl)


def embed_rows(
    matrix: QuantMatrix, tokens: torch.Tensor, slots: torch.Tensor, last_tokens: torch.Tensor, *, pdl: int = 0
) -> torch.Tensor:
    """Rows of the matrix by token, bf16 [len(tokens), columns]; a token of -1 is its slot's last one.

    tokens, slots int32 [rows]; last_tokens int32 [slots].
    """
    y = torch.empty((len(tokens), matrix.columns), dtype=torch.bfloat16, device=tokens.device)
    arguments = _decoded(matrix, y)
    arguments.tokens, arguments.slots, arguments.last = tokens.data_ptr(), slots.data_ptr(), last_tokens.data_ptr()
    kernel = nvrtc.kernel(_SOURCE, entry("Decoded", f"decode_rows<{matrix.type}>", 32))
    kernel.launch((len(tokens), -(-matrix.tiles // 4)), 32, 0, arguments, pdl=pdl)
    return y


def _decoded(matrix: QuantMatrix, y: torch.Tensor) -> _Decoded:
    arguments = _Decoded(weights=matrix.packed.data_ptr(), y=y.data_ptr())
    arguments.rows, arguments.columns, arguments.tiles = matrix.rows, matrix.columns, matrix.tiles
    return arguments


def _multiply(
    x: torch.Tensor,
    matrices: tuple[QuantMatrix, ...],
    config: QuantConfig,
    y: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    pdl: int,
    gate: int = 0,
) -> None:
    first, count = matrices[0], len(matrices)
    _check(x, first, y, bias, residual)
    parts = splits(first.rows, first.columns, count)
    kept = window(config, len(x), first.type, count, parts, first.tiles)
    arguments = _Product(
        (C.c_void_p * 2)(*[matrix.packed.data_ptr() for matrix in matrices]),
        x.data_ptr(),
        None if bias is None else bias.data_ptr(),
        None if residual is None else residual.data_ptr(),
        y.data_ptr(),
        x.stride(0),
        0 if residual is None else residual.stride(0),
        len(x),
        first.columns,
        first.rows,
        first.tiles,
        parts,
        gate,
        y.dtype == torch.float32,
        config.group,
        config.depth,
        kept,
        pdl == AHEAD,
    )
    kernel = nvrtc.kernel(_SOURCE, line(config, len(x), first.type))
    room = shared_bytes(config, len(x), first.type, count, parts, kept)
    kernel.launch((blocks(config, first.rows, count), 1), threads(config, count, parts), room, arguments, pdl=pdl)


def _check(
    x: torch.Tensor, matrix: QuantMatrix, y: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None
) -> None:
    fits = (
        x.dtype == torch.bfloat16
        and 0 < len(x) <= MAX_ROWS
        and x.shape[1] == matrix.columns
        and (x.stride(1), x.stride(0) % 8, x.data_ptr() % 16) == (1, 0, 0)
        and y.dtype in (torch.bfloat16, torch.float32)
        and (bias is None or (bias.dtype == torch.float32 and bias.is_contiguous() and len(bias) == matrix.rows))
        and (
            residual is None
            or (residual.dtype == torch.bfloat16 and residual.stride(1) == 1 and residual.shape == y.shape)
        )
    )
    if not fits:
        raise ValueError(
            f"{x.dtype} {tuple(x.shape)}, bias or residual don't fit a matrix {matrix.rows} x {matrix.columns}"
        )
