"""Products of sorted rows and their experts' matrices, a program for each tile of one expert's rows and some outputs.

Weights stand on the tall side of the matrix unit's tiles, so that few rows cost little. Each output is one running fp32
sum over ascending k, as in `linear_plain`: neither the tile nor who else is in it changes a bit. Programs beyond the
tiles that there are leave at once. Also runs under the interpreter.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl

from parkway.backends import Activation
from parkway.backends.cuda.experts_config import Tiles
from parkway.backends.cuda.experts_route import Routes
from parkway.backends.cuda.experts_stack import Stack
from parkway.backends.cuda.launch import wait
from parkway.backends.cuda.linear_config import GATES
from parkway.backends.cuda.linear_plain import product

NARROW = 16
"""Rows of a tile that the least tall instruction has room for; experts with more take taller ones."""


@triton.jit
def _some_rows(
    x_ptr, x_stride, row_of_ptr, first, end, weight_ptr, up_ptr, bias_ptr, up_bias_ptr, y_ptr, output, outputs, inputs,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, GATED: tl.constexpr,
    BIAS: tl.constexpr, SORTED: tl.constexpr, WHOLE_STEPS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Rows of places first … first + ROWS, as far as `end`, times some outputs of one expert's matrices."""
    place = first + tl.arange(0, ROWS)
    in_rows = place < end
    row = place if SORTED else tl.load(row_of_ptr + place, mask=in_rows, other=0)
    step = tl.arange(0, INPUTS)
    weight_row = tl.minimum(output, outputs - 1)
    x_at = x_ptr + row.to(tl.int64)[None, :] * x_stride + step[:, None]
    weight_at = weight_ptr + weight_row[:, None] * inputs + step[None, :]
    total = tl.zeros((OUTPUTS, ROWS), tl.float32)
    if GATED:
        up_at = up_ptr + weight_row[:, None] * inputs + step[None, :]
        up_total = tl.zeros((OUTPUTS, ROWS), tl.float32)
    for k in tl.range(0, inputs, INPUTS, num_stages=STAGES):
        if WHOLE_STEPS:
            x = tl.load(x_at, mask=in_rows[None, :], other=0.0)
            weight = tl.load(weight_at)
        else:
            inside = k + step < inputs
            x = tl.load(x_at, mask=inside[:, None] & in_rows[None, :], other=0.0)
            weight = tl.load(weight_at, mask=inside[None, :], other=0.0)
        total = tl.dot(weight, x, total)
        if GATED:
            up = tl.load(up_at) if WHOLE_STEPS else tl.load(up_at, mask=inside[None, :], other=0.0)
            up_total = tl.dot(up, x, up_total)
            up_at += INPUTS
        x_at += INPUTS
        weight_at += INPUTS
    if BIAS:
        total += tl.load(bias_ptr + weight_row)[:, None]
    if GATED:
        if BIAS:
            up_total += tl.load(up_bias_ptr + weight_row)[:, None]
        total = product(GATED, total, up_total)
    y_at = y_ptr + place.to(tl.int64)[None, :] * outputs + output[:, None]
    tl.store(y_at, total.to(tl.bfloat16), mask=in_rows[None, :] & (output < outputs)[:, None])


@triton.jit
def grouped_kernel(
    x_ptr, x_stride, row_of_ptr, tiles_ptr, count_ptr, weight_ptr, up_ptr, bias_ptr, up_bias_ptr, y_ptr, outputs,
    inputs, NARROW: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
    GATED: tl.constexpr, BIAS: tl.constexpr, SORTED: tl.constexpr, WHOLE_STEPS: tl.constexpr,
    STAGES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """y [places, outputs] = x Wᵀ + bias of each place's expert; if GATED, activation(x Wᵀ + bias) * (x Upᵀ + bias).

    SORTED: x has a row for each place, else row_of says which row is a place's.
    """
    output_tiles = tl.cdiv(outputs, OUTPUTS)
    tile = tl.program_id(0) // output_tiles
    output = tl.program_id(0) % output_tiles * OUTPUTS + tl.arange(0, OUTPUTS)
    wait(PDL)
    expert = tl.load(tiles_ptr + 3 * tile).to(tl.int64)  # asked for before it is known whether there is such a tile
    first = tl.load(tiles_ptr + 3 * tile + 1)
    end = first + tl.load(tiles_ptr + 3 * tile + 2)
    if tile < tl.load(count_ptr):
        weight_ptr += expert * outputs * inputs
        up_ptr += expert * outputs * inputs
        bias_ptr += expert * outputs
        up_bias_ptr += expert * outputs
        if end - first <= NARROW:
            _some_rows(
                x_ptr, x_stride, row_of_ptr, first, end, weight_ptr, up_ptr, bias_ptr, up_bias_ptr, y_ptr, output,
                outputs, inputs, NARROW, OUTPUTS, INPUTS, GATED, BIAS, SORTED, WHOLE_STEPS, STAGES,
            )  # fmt: skip
        elif ROWS > NARROW:
            _some_rows(
                x_ptr, x_stride, row_of_ptr, first, end, weight_ptr, up_ptr, bias_ptr, up_bias_ptr, y_ptr, output,
                outputs, inputs, ROWS, OUTPUTS, INPUTS, GATED, BIAS, SORTED, WHOLE_STEPS, 3,
            )  # fmt: skip


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
    pdl: int = 0,
) -> None:
    """Computes y [places, outputs] for tiles of at most `rows` places; `ordered`: x has a row for each place."""
    second = weight if up is None else up
    outputs, inputs = weight.rows, weight.columns
    grid = (len(routes.tiles) * triton.cdiv(outputs, tiles.outputs),)
    options: dict[str, Any] = {"launch_pdl": True} if pdl else {}
    grouped_kernel[grid](
        *(x, x.stride(0), routes.row_of, routes.tiles, routes.count, weight.values, second.values),
        *(weight.values if weight.bias is None else weight.bias, second.values if second.bias is None else second.bias),
        *(y, outputs, inputs, NARROW, max(NARROW, rows), tiles.outputs, tiles.inputs),
        GATED=0 if up is None else GATES[kind],
        BIAS=weight.bias is not None,
        SORTED=ordered,
        WHOLE_STEPS=inputs % tiles.inputs == 0,
        STAGES=tiles.stages,
        PDL=pdl,
        num_warps=tiles.warps,
        enable_fp_fusion=False,
        **options,
    )
