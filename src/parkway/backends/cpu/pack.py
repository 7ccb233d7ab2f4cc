"""Weights as the kernels want them: groups of 16 output rows, blocks of 32 columns. Written by pack.cpp."""

import ctypes as C
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parkway.backends.cpu.library import Memory, library
from parkway.backends.quant import SUPPORTED
from parkway.errors import Unsupported


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed matrix [rows, columns]; `stride` is rows rounded up to the group, the width of what it computes."""

    type: str
    rows: int
    columns: int
    memory: Memory

    @property
    def groups(self) -> int:
        return (self.rows + 15) // 16

    @property
    def stride(self) -> int:
        return self.groups * 16

    @property
    def group_bytes(self) -> int:
        return self.memory.size_bytes // self.groups


def pack_matrix(name: str, type_name: str, raw: npt.NDArray[np.uint8], columns: int) -> Matrix:
    """Raw rows uint8 [rows, row_bytes] as the file has them → Matrix. Raises Unsupported naming the tensor."""
    if type_name not in SUPPORTED:
        raise Unsupported(f"tensor {name} has type {type_name}; supported are {', '.join(SUPPORTED)}")
    size = library().pk_packed_bytes(type_name.encode(), len(raw), columns)
    if size < 0:
        raise Unsupported(f"tensor {name} has rows of {columns} values; the kernels need a multiple of 32")
    memory = Memory(size, f"tensor {name}")
    source = np.ascontiguousarray(raw)
    library().pk_pack(type_name.encode(), source.ctypes.data_as(C.c_void_p), len(raw), columns, memory.address)
    return Matrix(type_name, len(raw), columns, memory)
