"""Products of sorted rows and their experts' matrices, each warp with a ring of weights of its own: for few rows.

The bits are those of `experts_plain`: each output is one running fp32 sum over ascending columns. The kernel is in
experts_few.cu.
"""

import ctypes as C

import torch
import triton

from parkway.backends import Activation
from parkway.backends.cuda import nvrtc
from parkway.backends.cuda.experts_config import Tiles
from parkway.backends.cuda.experts_route import Routes
from parkway.backends.cuda.experts_stack import Stack
from parkway.backends.cuda.launch import multiprocessors
from parkway.backends.cuda.linear_config import GATES
from parkway.backends.cuda.quantised_config import entry

SOURCE = "experts_few.cu"
_TALL, _PITCH = 16, 512 + 16
"""Rows of weights of an item; bytes from one row to the next in a ring."""
OFTEN = 1
"""Places for each expert from which on most experts have some."""
ASKED_BYTES = 1024
"""Of a row of weights, what is asked for before it is known whether anybody needs it."""


class _FewRows(C.Structure):
    """Its twin is in experts_few.cu."""

    _fields_ = [
        ("weights", C.c_void_p * 2),
        ("bias", C.c_void_p * 2),
        ("x", C.c_void_p),
        ("row_of", C.c_void_p),
        ("tiles", C.c_void_p),
        ("count", C.c_void_p),
        ("y", C.c_void_p),
        ("x_stride", C.c_int64),
        ("columns", C.c_int),
        ("outputs", C.c_int),
        ("blocks", C.c_int),
        ("gated", C.c_int),
        ("listed", C.c_int),
        ("likely", C.c_int),
        ("asked", C.c_int),
    ]


def line(rows: int, tiles: Tiles, *, gated: bool) -> str:
    """What is compiled, of tiles of at most `rows` places: 1, 2, 4 or 8."""
    arguments = f"{rows}, {tiles.stages}, {'true' if gated else 'false'}"
    return entry("FewRows", f"multiply_few_rows<{arguments}>", 32 * tiles.warps)


def shared_bytes(rows: int, tiles: Tiles) -> int:
    """Of a block: the rings of its warps."""
    return tiles.warps * tiles.stages * (_TALL + rows) * _PITCH


def launch(
    x: torch.Tensor,
    routes: Routes,
    weight: Stack,
    up: Stack | None,
    rows: int,
    tiles: Tiles,
    kind: Activation,
    y: torch.Tensor,
    *,
    ordered: bool,
    pdl: bool = False,
) -> None:
    """Computes y [places, outputs] for tiles of at most `rows` places; `ordered`: x has a row for each place, and the
    kernel ahead made it, which itself had the routes."""
    both = (weight,) if up is None else (weight, up)
    items = len(routes.tiles) * triton.cdiv(weight.rows, _TALL // len(both))
    blocks = min(triton.cdiv(items, tiles.warps), _at_once(x.device))
    weights = (C.c_void_p * 2)(*(each.values.data_ptr() for each in both))
    biases = (C.c_void_p * 2)(*(None if each.bias is None else each.bias.data_ptr() for each in both))
    arguments = _FewRows(
        weights,
        biases,
        x.data_ptr(),
        None if ordered else routes.row_of.data_ptr(),
        routes.tiles.data_ptr(),
        routes.count.data_ptr(),
        y.data_ptr(),
        x.stride(0),
        weight.columns,
        weight.rows,
        blocks,
        0 if up is None else GATES[kind],
        ordered,
        0 if ordered or len(y) < weight.count * OFTEN else weight.count,
        ASKED_BYTES,
    )
    kernel = nvrtc.kernel(SOURCE, line(rows, tiles, gated=up is not None))
    kernel.launch((blocks, 1), 32 * tiles.warps, shared_bytes(rows, tiles), arguments, pdl=pdl)


def _at_once(device: torch.device) -> int:
    """Blocks, one for each multiprocessor; emulated two."""
    return multiprocessors(device) if device.type == "cuda" else 2
