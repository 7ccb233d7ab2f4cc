"""Weights as the kernels want them: groups of 16 output rows, blocks of 32 columns. Written by pack.cpp."""

import ctypes as C
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parkway.backends.cpu.library import Memory, aligned, library
from parkway.backends.quant import block_columns, check_type
from parkway.errors import Unsupported


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed matrix [rows, columns]; `stride` is rows rounded up to the group, the width of what it computes.

    `bias`: what is added to each output, float32 [stride].
    """

    type: str
    rows: int
    columns: int
    memory: "WeightMemory"
    address: int
    size_bytes: int
    bias: npt.NDArray[np.float32] | None = None

    @property
    def groups(self) -> int:
        return (self.rows + 15) // 16

    @property
    def stride(self) -> int:
        return self.groups * 16

    @property
    def group_bytes(self) -> int:
        return self.size_bytes // self.groups


class WeightMemory:
    """One run of memory for all matrices of a model: only a large run gets large pages, which fast reading needs."""

    def __init__(self, size_bytes: int) -> None:
        self._memory = Memory(size_bytes, "the weights")
        self.used_bytes = 0

    def take(self, size_bytes: int) -> int:
        """The address of `size_bytes` more; the memory was made large enough for all."""
        at = self.used_bytes
        self.used_bytes += aligned(size_bytes)
        assert self.used_bytes <= self._memory.size_bytes, "more weights than were counted"
        return self._memory.address + at


def packed_bytes(name: str, type_name: str, rows: int, columns: int) -> int:
    """Bytes of a matrix once it is packed. Raises Unsupported naming the tensor."""
    check_type(name, type_name)
    size: int = library().pk_packed_bytes(type_name.encode(), rows, columns)
    if size < 0:
        multiple = max(block_columns(type_name), 32)
        raise Unsupported(
            f"tensor {name} has rows of {columns} values; the kernels for {type_name} need a multiple of {multiple}"
        )
    return size


def pack_matrix(
    name: str,
    type_name: str,
    raw: npt.NDArray[np.uint8],
    columns: int,
    memory: WeightMemory | None = None,
    bias: npt.NDArray[np.float32] | None = None,
) -> Matrix:
    """Raw rows uint8 [rows, row_bytes] as the file has them, and a bias float32 [rows] → Matrix.

    Raises Unsupported naming the tensor.
    """
    size = packed_bytes(name, type_name, len(raw), columns)
    memory = memory or WeightMemory(aligned(size))
    address, source = memory.take(size), np.ascontiguousarray(raw)
    library().pk_pack(type_name.encode(), source.ctypes.data_as(C.c_void_p), len(raw), columns, address)
    added = None if bias is None else np.pad(bias, (0, -len(raw) % 16))
    return Matrix(type_name, len(raw), columns, memory, address, size, added)
