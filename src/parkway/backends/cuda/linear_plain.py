"""x Wᵀ with one program per tile that loads through pointers: any shape, few rows or many, also under the interpreter.

Each output is one running fp32 sum over ascending k; tile shape, warps and stages change nothing about that.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from parkway.backends.cuda.linear_config import LinearConfig


@triton.jit
def product(KIND: tl.constexpr, gate, up):
    """activation(gate) * up in fp32; KIND says which, as `linear_config.GATES`. Each activation is x / (1 + e^-y)."""
    if KIND == 1:
        made = gate / (1.0 + tl.exp(-gate)) * up
    elif KIND == 2:
        made = gate / (1.0 + tl.exp(-(gate * 1.5957691216057308) * (gate * 0.044715 * gate + 1.0))) * up
    else:
        gate = tl.minimum(gate, 7.0)
        up = tl.minimum(tl.maximum(up, -7.0), 7.0) + 1.0
        made = gate / (1.0 + tl.exp(-(gate * 1.702))) * up
    return made


@triton.jit(do_not_specialize=["rows"])
def plain_kernel(
    x_ptr,
    weight_ptr,
    up_ptr,
    bias_ptr,
    residual_ptr,
    y_ptr,
    rows,
    outputs,
    inputs,
    x_stride,
    residual_stride,
    TILE_ROWS: tl.constexpr,
    TILE_OUTPUTS: tl.constexpr,
    TILE_INPUTS: tl.constexpr,
    GATED: tl.constexpr,
    BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr,
    WHOLE_STEPS: tl.constexpr,
    PDL: tl.constexpr,
):
    """y [rows, outputs] = x [rows, inputs] Wᵀ + bias + residual; if GATED, activation(x Wᵀ) * (x Upᵀ).

    WHOLE_STEPS: `inputs` is a multiple of TILE_INPUTS. Programs of the same weights are neighbours.
    """
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row_tiles = tl.cdiv(rows, TILE_ROWS)
    first_row = tl.program_id(0) % row_tiles * TILE_ROWS
    first_output = tl.program_id(0) // row_tiles * TILE_OUTPUTS
    row = first_row + tl.arange(0, TILE_ROWS)
    output = first_output + tl.arange(0, TILE_OUTPUTS)
    step = tl.arange(0, TILE_INPUTS)
    in_rows = row[:, None] < rows
    # Outputs past the end are computed from the last weight row and never stored.
    weight_row = tl.minimum(output, outputs - 1).to(tl.int64)
    x_at = x_ptr + row.to(tl.int64)[:, None] * x_stride + step[None, :]
    weight_at = weight_ptr + weight_row[None, :] * inputs + step[:, None]
    total = tl.zeros((TILE_ROWS, TILE_OUTPUTS), tl.float32)
    if GATED:
        up_at = up_ptr + weight_row[None, :] * inputs + step[:, None]
        up_total = tl.zeros((TILE_ROWS, TILE_OUTPUTS), tl.float32)
    for k in range(0, inputs, TILE_INPUTS):
        if WHOLE_STEPS:
            x = tl.load(x_at, mask=in_rows, other=0.0)
            weight = tl.load(weight_at)
        else:
            inside = k + step < inputs
            x = tl.load(x_at, mask=in_rows & inside[None, :], other=0.0)
            weight = tl.load(weight_at, mask=inside[:, None], other=0.0)
        total = tl.dot(x, weight, total)
        if GATED:
            up = tl.load(up_at) if WHOLE_STEPS else tl.load(up_at, mask=inside[:, None], other=0.0)
            up_total = tl.dot(x, up, up_total)
            up_at += TILE_INPUTS
        x_at += TILE_INPUTS
        weight_at += TILE_INPUTS
    if GATED:
        total = product(GATED, total, up_total)
    in_outputs = output < outputs
    if BIAS:
        total += tl.load(bias_ptr + output, mask=in_outputs, other=0.0).to(tl.float32)[None, :]
    inside = in_rows & in_outputs[None, :]
    if RESIDUAL:
        residual_at = residual_ptr + row.to(tl.int64)[:, None] * residual_stride + output[None, :]
        total += tl.load(residual_at, mask=inside, other=0.0).to(tl.float32)
    y_at = y_ptr + row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(y_at, total.to(y_ptr.dtype.element_ty), mask=inside)


def launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    up: torch.Tensor | None,
    tile: LinearConfig,
    y: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    gate: int = 0,
    pdl: int = 0,
) -> None:
    """Computes y [rows, outputs] in tiles of `tile`. `gate`: which of `GATES`, where there is an up."""
    rows, outputs = y.shape
    inputs = x.shape[1]
    grid = (triton.cdiv(rows, tile.rows) * triton.cdiv(outputs, tile.outputs),)
    options: dict[str, Any] = {"launch_pdl": True} if pdl else {}
    plain_kernel[grid](
        x,
        weight,
        weight if up is None else up,
        weight if bias is None else bias,
        x if residual is None else residual,
        y,
        rows,
        outputs,
        inputs,
        x.stride(0),
        0 if residual is None else residual.stride(0),
        tile.rows,
        tile.outputs,
        tile.inputs,
        GATED=gate,
        BIAS=bias is not None,
        RESIDUAL=residual is not None,
        WHOLE_STEPS=inputs % tile.inputs == 0,
        PDL=bool(pdl),
        num_warps=tile.warps,
        num_stages=tile.stages,
        enable_fp_fusion=False,
        **options,
    )
