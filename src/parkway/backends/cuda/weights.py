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
    """Matrices that multiply the same rows, side by side where they can be; each part with its matrices' heights."""

    parts: tuple[tuple[CudaMatrix, list[int]], ...]


def pack(
    name: str, type_name: str, raw: npt.NDArray[np.uint8], columns: int, bias: torch.Tensor | None, device: torch.device
) -> CudaMatrix:
    """A tensor's raw rows uint8 [rows, row_bytes] → the device. Raises Unsupported naming the tensor."""
    if type_name not in FLOATS:
        return quantised.pack(name, type_name, raw, columns, device, bias)
    if type_name == "BF16":
        writable = raw if raw.flags.writeable else raw.copy()  # torch takes no other; a mapped file is read-only
        values = torch.from_numpy(writable).to(device).view(torch.bfloat16)
    else:
        values = torch.from_numpy(decode(name, type_name, raw)).to(device).to(torch.bfloat16)
    return DenseMatrix(values.view(len(raw), columns), bias)


def together(matrices: Sequence[CudaMatrix]) -> Together:
    """Dense matrices become one, and so do quantised ones of one type; others stay apart."""
    heights = [matrix.rows for matrix in matrices]
    quants = [matrix for matrix in matrices if isinstance(matrix, QuantMatrix)]
    if len(quants) == len(matrices) and quantised.stackable(quants):
        return Together(((quantised.stacked(quants), heights),))
    dense = [matrix for matrix in matrices if isinstance(matrix, DenseMatrix)]
    if len(dense) < len(matrices):
        return Together(tuple((matrix, [matrix.rows]) for matrix in matrices))
    biases = [matrix.bias for matrix in dense]
    bias = torch.cat([each for each in biases if each is not None]) if any(b is not None for b in biases) else None
    if bias is not None and len(bias) < sum(heights):
        raise ValueError("some of the matrices have a bias and some have none")
    return Together(((DenseMatrix(torch.cat([matrix.values for matrix in dense]), bias), heights),))
