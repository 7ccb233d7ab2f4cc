"""Weights on the device: matrices as bf16, or quantised as the kernels want them; those that multiply the same rows
side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from parkway.backends.cuda import quantised
from parkway.backends.cuda.quantised import QuantMatrix
from parkway.backends.quant import decode

FLOATS = ("BF16", "F16", "F32")
"""Types of a file that become bf16, with one rounding."""


@dataclass(frozen=True, slots=True)
class DenseMatrix:
    """bf16 [rows, columns], contiguous; bias fp32 [rows] or None."""

    values: torch.Tensor
    bias: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        return self.values.shape[0]

    @property
    def columns(self) -> int:
        return self.values.shape[1]

    @property
    def bytes(self) -> int:
        return self.values.nbytes


CudaMatrix = DenseMatrix | QuantMatrix


@dataclass(frozen=True, slots=True)
class Together:
    """Matrices that multiply the same rows, side by side where they can be: parts, each with its matrices' heights.
    `places`: where among the results of all parts each matrix has its own."""

    parts: tuple[tuple[CudaMatrix, list[int]], ...]
    places: tuple[int, ...]


def pack(
    name: str, type_name: str, raw: npt.NDArray[np.uint8], columns: int, bias: torch.Tensor | None, device: torch.device
) -> CudaMatrix:
    """A tensor's raw rows uint8 [rows, row_bytes] → the device. Raises Unsupported naming the tensor."""
    if type_name not in FLOATS:
        return quantised.pack(name, type_name, raw, columns, device, bias)
    kept = raw if type_name == "BF16" else decode(name, type_name, raw)
    writable = kept if kept.flags.writeable else kept.copy()  # torch takes no other; a mapped file is read-only
    values = torch.from_numpy(writable).to(device)
    values = values.view(torch.bfloat16) if type_name == "BF16" else values.to(torch.bfloat16)
    return DenseMatrix(values.view(len(raw), columns), bias)


def together(matrices: Sequence[CudaMatrix]) -> Together:
    """Matrices of one kind become one; quantised ones whose rows don't fill their tiles stay apart."""
    kinds = [_kind(matrix) for matrix in matrices]
    alike = [[place for place, each in enumerate(kinds) if each == kind] for kind in dict.fromkeys(kinds)]
    made: list[tuple[CudaMatrix, list[int]]] = []
    for places in alike:
        made += _joined([matrices[place] for place in places])
    order = [place for places in alike for place in places]
    return Together(tuple(made), tuple(order.index(place) for place in range(len(matrices))))


def _kind(matrix: CudaMatrix) -> tuple[str, int, bool]:
    """Of what only matrices that have it in common can become one."""
    return matrix.type if isinstance(matrix, QuantMatrix) else "", matrix.columns, matrix.bias is None


def _joined(alike: Sequence[CudaMatrix]) -> list[tuple[CudaMatrix, list[int]]]:
    heights = [matrix.rows for matrix in alike]
    quants = [matrix for matrix in alike if isinstance(matrix, QuantMatrix)]
    if quants and quantised.stackable(quants):
        return [(quantised.stacked(quants), heights)]
    if quants:
        return [(matrix, [matrix.rows]) for matrix in quants]
    dense = [matrix for matrix in alike if isinstance(matrix, DenseMatrix)]
    biases = [matrix.bias for matrix in dense if matrix.bias is not None]
    return [
        (DenseMatrix(torch.cat([matrix.values for matrix in dense]), torch.cat(biases) if biases else None), heights)
    ]
