"""The matrices of all experts of a layer, one behind the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from parkway.backends.cuda import quantised
from parkway.backends.cuda.quantised import QuantMatrix
from parkway.backends.cuda.weights import CudaMatrix, DenseMatrix
from parkway.errors import Unsupported


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """bf16 [count * rows, columns], contiguous; bias fp32 [count, rows] or None."""

    count: int
    values: torch.Tensor
    bias: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        return self.values.shape[0] // self.count

    @property
    def columns(self) -> int:
        return self.values.shape[1]

    @property
    def bytes(self) -> int:
        return self.values.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class QuantStack:
    """One matrix [count * rows, columns] of quantised ones; bias fp32 [count, rows] or None."""

    count: int
    matrix: QuantMatrix
    bias: torch.Tensor | None = None

    @property
    def type(self) -> str:
        return self.matrix.type

    @property
    def rows(self) -> int:
        return self.matrix.rows // self.count

    @property
    def columns(self) -> int:
        return self.matrix.columns

    @property
    def bytes(self) -> int:
        return self.matrix.bytes


AnyStack = Stack | QuantStack


def stacked(matrices: Sequence[CudaMatrix]) -> AnyStack:
    """A stack of matrices of one shape and type, of which all or none have a bias. Raises Unsupported."""
    biases = [matrix.bias for matrix in matrices if matrix.bias is not None]
    bias = torch.stack(biases) if biases else None
    dense = [matrix for matrix in matrices if isinstance(matrix, DenseMatrix)]
    if len(dense) == len(matrices):
        return Stack(len(matrices), torch.cat([matrix.values for matrix in dense]), bias)
    quants = [
        QuantMatrix(each.type, each.rows, each.columns, each.packed)
        for each in matrices
        if isinstance(each, QuantMatrix)
    ]
    if len(quants) < len(matrices) or not quantised.stackable(quants):
        first = matrices[0]
        raise Unsupported(f"experts of {first.rows} x {first.columns} values: not of one type, or not of whole bands")
    return QuantStack(len(matrices), quantised.stacked(quants), bias)
