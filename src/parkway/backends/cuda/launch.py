"""What several kernels share: how wide the device is, maps of matrices for bulk tensor loads, and how one waits for
those in front of it."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch.utils.weak import WeakTensorKeyDictionary
from triton.experimental.gluon.language import NVMMASharedLayout, bfloat16
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from parkway.backends.cuda.device import AHEAD

_AHEAD = tl.constexpr(AHEAD)
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


@triton.jit
def wait(PDL: tl.constexpr):
    """Until what earlier kernels wrote is there; then lets the next kernel come, or first if PDL is AHEAD."""
    if PDL == _AHEAD:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    elif PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
