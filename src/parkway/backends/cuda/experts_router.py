"""A mixture's router: rows normed, and their products with its weights, in one launch. Kernel: experts_router.cu.

Sums over 256 columns each are added in order, so that many warps share a row; however many rows there are, it is the
same kernel.
"""

import ctypes as C

import torch
import triton

from parkway.backends.cuda import nvrtc
from parkway.backends.cuda.launch import multiprocessors
from parkway.backends.cuda.quantised_config import PITCH_BYTES, entry
from parkway.backends.cuda.quantised_pack import TILE_COLUMNS
from parkway.backends.cuda.weights import DenseMatrix

SOURCE = "experts_router.cu"
_TALL, _WIDE = 16, 8
_PART_BYTES = (_TALL + _WIDE) * PITCH_BYTES + (_TALL + 2) * _WIDE * 4
_MOST_PARTS = 16
"""Warps of a block, each with 256 columns."""
_BLOCKS = 2
"""That a multiprocessor has room for."""


class _Router(C.Structure):
    """Its twin is in experts_router.cu."""

    _fields_ = [
        ("x", C.c_void_p),
        ("norm", C.c_void_p),
        ("weights", C.c_void_p),
        ("bias", C.c_void_p),
        ("normed", C.c_void_p),
        ("logits", C.c_void_p),
        ("x_stride", C.c_int64),
        ("rows", C.c_int),
        ("columns", C.c_int),
        ("experts", C.c_int),
        ("blocks", C.c_int),
        ("epsilon", C.c_float),
    ]


def suits(router: DenseMatrix) -> bool:
    """Whether the kernel has room for such a router."""
    return router.columns <= _MOST_PARTS * TILE_COLUMNS and router.columns % 8 == 0


def line(columns: int) -> str:
    """What is compiled for routers of so many columns."""
    return entry("Router", "route_rows", 32 * _parts(columns))


def shared_bytes(columns: int) -> int:
    return _parts(columns) * _PART_BYTES


def norm_and_route(
    x: torch.Tensor, weight: torch.Tensor, epsilon: float, router: DenseMatrix, *, pdl: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(normed, logits): rows.rms_norm, bf16 [rows, width], and its product with the router, fp32 [rows, experts].

    x bf16 [rows, width], its rows at any multiple of 8 apart; weight float32 [width].
    """
    rows, columns = x.shape
    normed, logits = x.new_empty((rows, columns)), x.new_empty((rows, router.rows), dtype=torch.float32)
    groups = triton.cdiv(router.rows, _TALL)
    at_once = _BLOCKS * multiprocessors(x.device) if x.device.type == "cuda" else groups
    blocks = max(1, min(triton.cdiv(rows, _WIDE), at_once // groups))
    arguments = _Router(
        *(x.data_ptr(), weight.data_ptr(), router.values.data_ptr()),
        None if router.bias is None else router.bias.data_ptr(),
        *(normed.data_ptr(), logits.data_ptr(), x.stride(0), rows, columns, router.rows, blocks, epsilon),
    )
    kernel = nvrtc.kernel(SOURCE, line(columns))
    kernel.launch((blocks, groups), 32 * _parts(columns), shared_bytes(columns), arguments, pdl=pdl)
    return normed, logits


def _parts(columns: int) -> int:
    return -(-columns // TILE_COLUMNS)
