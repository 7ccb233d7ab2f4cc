"""Products of sorted rows and their experts' quantised matrices: as they are for few rows, as bf16 for many.

The bits are the same: both round a weight once and add in ascending order, without splits. Kernel: experts.cu.
"""

import ctypes as C

import torch

from parkway.backends import Activation
from parkway.backends.cuda import nvrtc, quantised, quantised_many
from parkway.backends.cuda.device import AHEAD
from parkway.backends.cuda.experts_config import FEW_ROWS
from parkway.backends.cuda.experts_route import Routes
from parkway.backends.cuda.experts_stack import AnyStack, QuantStack, Stack
from parkway.backends.cuda.linear_config import GATES
from parkway.backends.cuda.quantised import _Product
from parkway.backends.cuda.quantised_config import QuantConfig, blocks, entry, shared_bytes, threads

_SOURCE = "experts.cu"
_CONFIG = QuantConfig(2, 4, 3)
_HEIGHTS = ((8, 8), (16, FEW_ROWS))
"""Rows that a block has room for: of most experts, and at most."""


class _Experts(C.Structure):
    """Its twin is in experts.cu."""

    _fields_ = [("first", _Product), ("tiles", C.c_void_p), ("count", C.c_void_p), ("expert_bytes", C.c_int64)]


class Rooms:
    """Where quantised stacks are decoded, over what was decoded before: one room for gate and down, one for up.

    A captured graph keeps a room's address, so room for the largest stack must be there before.
    """

    def __init__(self) -> None:
        self._both: torch.Tensor | None = None

    @property
    def bytes(self) -> int:
        return 0 if self._both is None else self._both.nbytes

    def reserve(self, values: int, device: torch.device) -> None:
        """Makes room for stacks of so many values. Raises torch.OutOfMemoryError."""
        if values * 4 > self.bytes:
            self._both = torch.empty((2, values), dtype=torch.bfloat16, device=device)

    def decoded(self, stack: AnyStack, place: int) -> Stack:
        """The stack as bf16."""
        if isinstance(stack, Stack):
            return stack
        matrix = stack.matrix
        self.reserve(matrix.rows * matrix.columns, matrix.packed.device)
        assert self._both is not None
        values = self._both[place, : matrix.rows * matrix.columns].view(matrix.rows, matrix.columns)
        quantised.dequantise(matrix, values)
        return Stack(stack.count, values, stack.bias)


def lines(type_name: str) -> list[str]:
    """All that is compiled of a type."""
    return [_line(type_name, rows) for rows in (1, FEW_ROWS)]


def gated(
    x: torch.Tensor, rows: int, routes: Routes, gate: QuantStack, up: QuantStack, kind: Activation, *, pdl: int
) -> torch.Tensor:
    """activation(x Gᵀ + bias) * (x Uᵀ + bias) of x [places, columns], bf16, each expert with at most `rows` places."""
    if gate.type == up.type and gate.bias is None:
        return _multiply(x, rows, routes, (gate, up), GATES[kind], torch.bfloat16, pdl)
    sums = (_multiply(x, rows, routes, (each,), 0, torch.float32, pdl) for each in (gate, up))
    return quantised_many.finished(*sums, gate=GATES[kind])


def linear(x: torch.Tensor, rows: int, routes: Routes, stack: QuantStack, *, pdl: int) -> torch.Tensor:
    """x Wᵀ + bias of x [places, columns], bf16, each expert with at most `rows` places."""
    return _multiply(x, rows, routes, (stack,), 0, torch.bfloat16, pdl)


def _multiply(
    x: torch.Tensor,
    rows: int,
    routes: Routes,
    stacks: tuple[QuantStack, ...],
    gate: int,
    dtype: torch.dtype,
    pdl: int,
) -> torch.Tensor:
    first, count = stacks[0], len(stacks)
    y = x.new_empty((len(x), first.rows), dtype=dtype)
    weights = (C.c_void_p * 2)(*[stack.matrix.packed.data_ptr() for stack in stacks])
    bias = None if first.bias is None else first.bias.data_ptr()
    product = _Product(weights, x.data_ptr(), bias, None, y.data_ptr(), x.stride(0))
    product.columns, product.outputs, product.tiles = first.columns, first.rows, first.matrix.tiles
    product.splits, product.gated, product.floats = 1, gate, dtype == torch.float32
    product.ahead = pdl == AHEAD
    arguments = _Experts(product, routes.tiles.data_ptr(), routes.count.data_ptr(), first.bytes // first.count)
    kernel = nvrtc.kernel(_SOURCE, _line(first.type, rows))
    room = max(shared_bytes(_CONFIG, height, first.type, count, 1) for height in _heights(rows))
    grid = blocks(_CONFIG, first.rows, count), len(routes.tiles)
    kernel.launch(grid, threads(_CONFIG, count, 1), room, arguments, pdl=pdl)
    return y


def _heights(rows: int) -> tuple[int, int]:
    return next(heights for heights in _HEIGHTS if rows <= heights[1])


def _line(type_name: str, rows: int) -> str:
    narrow, wide = _heights(rows)
    arguments = f"{type_name}, {_CONFIG.bands}, {narrow}, {wide}, {_CONFIG.group}, {_CONFIG.depth}"
    return entry("ExpertsProduct", f"multiply_experts<{arguments}>", threads(_CONFIG, 2, 1))
