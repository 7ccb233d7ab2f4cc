"""What launches of several kernels share: how wide the device is, and maps of matrices for bulk tensor loads."""

import functools
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary
from triton.experimental.gluon.language import NVMMASharedLayout, bfloat16
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

_kept: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """How many programs of one multiprocessor each run at once."""
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def has_warpgroups() -> bool:
    """Whether there is a GPU of the Hopper kind, whose four-warp matrix instructions `linear_stream` is made of."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9


@functools.cache
def tile_layout(rows: int, columns: int) -> Any:
    """How a bf16 tile [rows, columns] lies in shared memory, for bulk loads and the matrix unit."""
    return NVMMASharedLayout.get_default_for([rows, columns], bfloat16)


def tile_map(matrix: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """How tiles [rows, columns] of a bf16 matrix are loaded; what lies outside the matrix is zero."""
    return TensorDescriptor(matrix, matrix.shape, matrix.stride(), [rows, columns], tile_layout(rows, columns))


def weight_map(weight: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """The same for a weight, made once and kept as long as the weight lives."""
    maps = _kept.get(weight)
    if maps is None:
        maps = _kept[weight] = {}
    if (rows, columns) not in maps:
        maps[rows, columns] = tile_map(weight.detach(), rows, columns)  # an alias: the key must be free to die
    return maps[rows, columns]
