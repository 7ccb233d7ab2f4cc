"""The matrices of all experts of a layer, packed one behind the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parkway.backends.cpu.library import aligned
from parkway.backends.cpu.pack import Matrix, WeightMemory, pack_matrix, packed_bytes


@dataclass(frozen=True, slots=True)
class Stack:
    """`count` matrices like the first one, `expert_bytes` apart; bias float32 [count, stride] or None."""

    first: Matrix
    count: int
    expert_bytes: int
    bias: npt.NDArray[np.float32] | None


def stack_bytes(name: str, type_name: str, count: int, rows: int, columns: int) -> int:
    """Bytes of a stack once it is packed. Raises Unsupported naming the tensor."""
    return count * aligned(packed_bytes(name, type_name, rows, columns))


def pack_stack(
    name: str,
    type_name: str,
    raws: Sequence[npt.NDArray[np.uint8]],
    columns: int,
    memory: WeightMemory | None = None,
    biases: Sequence[npt.NDArray[np.float32]] | None = None,
) -> Stack:
    """Each expert's raw rows uint8 [rows, row_bytes], and biases float32 [rows] → Stack. Raises Unsupported."""
    memory = memory or WeightMemory(stack_bytes(name, type_name, len(raws), len(raws[0]), columns))
    matrices = [pack_matrix(name, type_name, raw, columns, memory) for raw in raws]
    padding = matrices[0].stride - matrices[0].rows
    bias = None if biases is None else np.stack([np.pad(each, (0, padding)) for each in biases])
    return Stack(matrices[0], len(matrices), aligned(matrices[0].size_bytes), bias)
