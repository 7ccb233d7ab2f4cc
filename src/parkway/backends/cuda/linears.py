"""A matrix times a step's rows, whatever its type: which kernel, in which configuration.

Quantised matrices have a kernel of their own for few rows. Many rows multiply the matrix as bf16, decoded just before
into room that all matrices share; the bits are the same, since both round a weight once and add in the same order, also
the sums of the splits where there are several.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from parkway.backends import Activation
from parkway.backends.cuda import linear, linear_config, pointwise, quantised, quantised_many
from parkway.backends.cuda.chooser import Chooser
from parkway.backends.cuda.device import DENSE, ONE_BY_ONE, Device, Launches
from parkway.backends.cuda.launch import has_warpgroups
from parkway.backends.cuda.linear_config import GATES
from parkway.backends.cuda.quantised import QuantMatrix
from parkway.backends.cuda.quantised_config import MAX_ROWS
from parkway.backends.cuda.weights import CudaMatrix, DenseMatrix


class Linears(Protocol):
    """How a backend multiplies."""

    def rows(
        self,
        x: torch.Tensor,
        matrix: CudaMatrix,
        residual: torch.Tensor | None = None,
        out_dtype: torch.dtype = torch.bfloat16,
    ) -> torch.Tensor:
        """x Wᵀ + bias + residual, [rows, matrix.rows]."""

    def gated(self, x: torch.Tensor, gate: CudaMatrix, up: CudaMatrix, activation: Activation) -> torch.Tensor:
        """activation(x Gᵀ) * (x Uᵀ), bf16 [rows, gate.rows]."""


class ExactLinears:
    """Our kernels, in the configurations of a chooser."""

    def __init__(self, chooser: Chooser, device: Device, values: int = 0, launches: Launches = DENSE) -> None:
        """`values`: of the largest quantised matrix that many rows multiply, whose room is taken now.

        Raises torch.OutOfMemoryError.
        """
        self._chooser = chooser
        self._device = device
        self._launches = launches
        self._streams = device.is_gpu and has_warpgroups()
        self._decoded = {place: self._empty(values) for place in range(2)}

    def rows(
        self,
        x: torch.Tensor,
        matrix: CudaMatrix,
        residual: torch.Tensor | None = None,
        out_dtype: torch.dtype = torch.bfloat16,
    ) -> torch.Tensor:
        """x Wᵀ + bias + residual, [rows, matrix.rows]."""
        parts = _parts(x, matrix)
        if isinstance(matrix, QuantMatrix) and parts > 1:
            total = self._sums(x, matrix, parts)
            return quantised_many.finished(total, bias=matrix.bias, residual=residual, out_dtype=out_dtype)
        suited = self._suited(x, matrix, 0)
        # Kernels read weights before the one in front has ended.
        pdl = self._early(x) if suited is matrix else ONE_BY_ONE
        return self._product(x, suited, residual, out_dtype, pdl)

    def _product(
        self, x: torch.Tensor, matrix: CudaMatrix, residual: torch.Tensor | None, out_dtype: torch.dtype, pdl: int
    ) -> torch.Tensor:
        how: dict[str, Any] = {"bias": matrix.bias, "residual": residual, "out_dtype": out_dtype, "pdl": pdl}

        def launch(config: Any, weights: tuple[Any, ...]) -> torch.Tensor:
            (weight,) = weights
            if isinstance(weight, QuantMatrix):
                return quantised.linear(x, weight, config, **how)
            return linear.linear(x, weight.values, config, **how)

        kind = f"{out_dtype} {residual is not None}"
        return launch(self._config("linear", kind, x, (matrix,), launch, pdl), (matrix,))

    def gated(self, x: torch.Tensor, gate: CudaMatrix, up: CudaMatrix, activation: Activation) -> torch.Tensor:
        """activation(x Gᵀ) * (x Uᵀ), bf16 [rows, gate.rows]."""
        if _type(gate) != _type(up):  # of a file that mixes types: no kernel has both
            opened, values = (self.rows(x, each, out_dtype=torch.float32) for each in (gate, up))
            return quantised_many.finished(opened, values, gate=GATES[activation])
        parts = _parts(x, gate, 2)
        if isinstance(gate, QuantMatrix) and isinstance(up, QuantMatrix) and parts > 1:
            opened = self._sums(x, gate, parts)
            return quantised_many.finished(opened, self._sums(x, up, parts), gate=GATES[activation])
        pair = self._suited(x, gate, 0), self._suited(x, up, 1)
        pdl = self._early(x) if pair[0] is gate else ONE_BY_ONE

        def launch(config: Any, both: tuple[Any, ...]) -> torch.Tensor:
            first, second = both
            if isinstance(first, QuantMatrix):
                return quantised.gated(x, first, second, config, activation=activation, pdl=pdl)
            return linear.gated(x, first.values, second.values, config, activation=activation, pdl=pdl)

        return launch(self._config("gated", activation, x, pair, launch, pdl), pair)

    def _config(
        self,
        operation: str,
        kind: str,
        x: torch.Tensor,
        matrices: tuple[CudaMatrix, ...],
        launch: Callable[..., Any],
        pdl: int,
    ) -> Any:
        first = matrices[0]
        shape = f"{_type(first)} {first.rows} x {first.columns} x {len(matrices)} {kind}"

        def candidates(rows: int) -> Sequence[Any]:
            if isinstance(first, QuantMatrix):
                count = len(matrices)
                return quantised.candidates(rows, first.type, count, quantised.splits(first.rows, first.columns, count))
            return linear_config.candidates(rows, first.columns, matrices=len(matrices), streams=self._streams)

        def as_in_a_step(config: Any, weights: tuple[Any, ...]) -> None:
            in_front(x, pdl)
            launch(config, weights)

        return self._chooser.pick(operation, shape, len(x), candidates, matrices, as_in_a_step)

    def _early(self, x: torch.Tensor) -> int:
        return self._launches.of(self._device, len(x))

    def _suited(self, x: torch.Tensor, matrix: CudaMatrix, place: int) -> CudaMatrix:
        """The matrix as so many rows multiply it: a quantised one decoded for many, over what was decoded before."""
        if not isinstance(matrix, QuantMatrix) or len(x) <= MAX_ROWS:
            return matrix
        values = self._room(matrix, place)[: matrix.rows * matrix.columns].view(matrix.rows, matrix.columns)
        quantised.dequantise(matrix, values)
        return DenseMatrix(values, matrix.bias)

    def _sums(self, x: torch.Tensor, matrix: QuantMatrix, parts: int) -> torch.Tensor:
        """x Wᵀ in fp32, the sums of the splits added in order."""

        def product(x: torch.Tensor, weight: torch.Tensor, total: torch.Tensor | None) -> torch.Tensor:
            return self._product(x, DenseMatrix(weight), total, torch.float32, False)

        return quantised_many.sums(x, matrix, parts, self._room(matrix, 0), product)

    def _room(self, matrix: QuantMatrix, place: int) -> torch.Tensor:
        if self._decoded[place].numel() < matrix.rows * matrix.columns:
            self._decoded[place] = self._empty(matrix.rows * matrix.columns)
        return self._decoded[place]

    def _empty(self, values: int) -> torch.Tensor:
        return torch.empty(values, dtype=torch.bfloat16, device=self._device.torch)


def in_front(x: torch.Tensor, pdl: int) -> None:
    """What a product that is timed waits for, as in a step: behind its end nothing else keeps the device busy."""
    pointwise.add(x, x, pdl=pdl)


def _type(matrix: CudaMatrix) -> str:
    return matrix.type if isinstance(matrix, QuantMatrix) else "bf16"


def _parts(x: torch.Tensor, matrix: CudaMatrix, matrices: int = 1) -> int:
    """Products of splits to be added one after the other; 1 where the kernel does that, or nothing is split."""
    if not isinstance(matrix, QuantMatrix) or len(x) <= MAX_ROWS:
        return 1
    return quantised.splits(matrix.rows, matrix.columns, matrices)
