"""Tensors made of a file's others, each time they are read: some of the rows, one of a stack, another value for each.

The rows of a quantised tensor are whole blocks, so they can be taken apart and put in another order as they are.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from parkway.backends.quant import decode
from parkway.errors import Unsupported
from parkway.weights.checkpoint import MadeTensor, RawTensor

Rows = slice | npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def rows_of(tensor: RawTensor, rows: Rows) -> RawTensor:
    """These rows of a matrix, or values of a vector."""
    count, *inner = tensor.shape
    left = len(np.arange(count)[rows])

    def make() -> npt.NDArray[np.uint8]:
        chosen = tensor.raw.reshape(count, -1)[rows]
        return chosen if inner else chosen.reshape(1, -1)

    return MadeTensor(tensor.name, (left, *inner), tensor.type, make)


def columns_of(tensor: RawTensor, start: int, count: int) -> RawTensor:
    """So many columns of a matrix. Raises Unsupported where they are no whole blocks of its type."""
    block, block_bytes = GGML_QUANT_SIZES[tensor.type]
    if start % block or count % block:
        raise Unsupported(f"tensor {tensor.name}: {count} of its columns are no whole blocks of {tensor.type.name}")
    part = slice(start // block * block_bytes, (start + count) // block * block_bytes)
    return MadeTensor(
        tensor.name, (tensor.shape[0], count), tensor.type, lambda: np.ascontiguousarray(tensor.raw[:, part])
    )


def dealt(tensor: RawTensor, groups: int, *widths: int) -> list[RawTensor]:
    """Of a matrix that has, for each of `groups`, rows of several kinds behind each other: all rows of each kind.
    `widths`: how many a group has of each."""
    rows = np.arange(tensor.shape[0]).reshape(groups, sum(widths))
    return [rows_of(tensor, part.reshape(-1)) for part in np.split(rows, np.cumsum(widths)[:-1], axis=1)]


def all_of(stack: RawTensor) -> list[RawTensor]:
    """Matrices of a stack [matrices, rows, columns], or vectors of a stack [vectors, values].

    The stack is read once for all of them if they are read in order.
    """
    count, *inner = stack.shape
    held = _Held(stack)
    return [MadeTensor(stack.name, tuple(inner), stack.type, partial(held.part, number)) for number in range(count)]


class _Held:
    """A stack's bytes, from the first of its parts that is read to the last."""

    def __init__(self, stack: RawTensor) -> None:
        self._stack = stack
        self._raw: npt.NDArray[np.uint8] | None = None

    def part(self, number: int) -> npt.NDArray[np.uint8]:
        if self._raw is None:
            self._raw = self._stack.raw.reshape(self._stack.shape[0], -1)
        count, *inner = self._stack.shape
        found: npt.NDArray[np.uint8] = self._raw[number].reshape(_rows(tuple(inner)), -1)
        if number == count - 1:
            self._raw = None
        return found


def shaped(tensor: RawTensor, *shape: int) -> RawTensor:
    """The same values in another shape, whose rows are as long, or of a vector the only row."""
    return MadeTensor(tensor.name, shape, tensor.type, lambda: tensor.raw.reshape(-1, tensor.raw.size // _rows(shape)))


def mapped(tensor: RawTensor, function: Callable[[Floats], Floats]) -> RawTensor:
    """Another number for each, as F32."""

    def make() -> npt.NDArray[np.uint8]:
        values = decode(tensor.name, tensor.type.name, tensor.raw)
        return np.ascontiguousarray(function(values), np.float32).view(np.uint8)

    return MadeTensor(tensor.name, tensor.shape, GGMLQuantizationType.F32, make)


def _rows(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[:-1]))
