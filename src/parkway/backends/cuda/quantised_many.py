"""Quantised matrices times many rows: decoded to bf16 first, the sums of the splits added in order.

The bits are those of `quantised`, whose kernels add the same splits in the same order.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from parkway.backends.cuda import quantised
from parkway.backends.cuda.linear_plain import product
from parkway.backends.cuda.quantised import QuantMatrix, split_columns

_TILE = 1024
Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""(x, weight, residual or None) → x Wᵀ + residual, all but the first two fp32."""


@triton.jit(do_not_specialize=["rows"])
def _finish(
    sums_ptr, up_ptr, bias_ptr, residual_ptr, residual_stride, y_ptr, rows, WIDTH: tl.constexpr,
    GATED: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """y = sums + bias + residual; if GATED, activation(sums) * up."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < WIDTH
    value = tl.load(sums_ptr + row * WIDTH + column, mask=inside, other=0.0)
    if GATED:
        value = product(GATED, value, tl.load(up_ptr + row * WIDTH + column, mask=inside, other=0.0))
    if BIAS:
        value += tl.load(bias_ptr + column, mask=inside, other=0.0)
    if RESIDUAL:
        value += tl.load(residual_ptr + row * residual_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * WIDTH + column, value.to(y_ptr.dtype.element_ty), mask=inside)


def sums(x: torch.Tensor, matrix: QuantMatrix, parts: int, room: torch.Tensor, product: Product) -> torch.Tensor:
    """x Wᵀ in fp32, split by split. `room`: bf16, as many numbers as the matrix has at least; written over."""
    quantised.dequantise(matrix, room[: matrix.rows * matrix.columns].view(matrix.rows, matrix.columns), parts)
    total: torch.Tensor | None = None
    for columns in split_columns(matrix.columns, parts):
        first, width = matrix.rows * columns.start, columns.stop - columns.start
        weight = room[first : first + matrix.rows * width].view(matrix.rows, width)
        total = product(x[:, columns], weight, total)
    assert total is not None
    return total


def finished(
    total: torch.Tensor,
    up: torch.Tensor | None = None,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    gate: int = 0,
    out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """total + bias + residual, or activation(total) * up, rounded once: [rows, width] of fp32 sums, contiguous. `gate`:
    which of `GATES`, where there is an up."""
    rows, width = total.shape
    y = torch.empty((rows, width), dtype=out_dtype, device=total.device)
    options: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}
    _finish[(rows, triton.cdiv(width, _TILE))](
        *(total, total if up is None else up, total if bias is None else bias),
        *(total if residual is None else residual, 0 if residual is None else residual.stride(0), y, rows, width),
        *(gate, bias is not None, residual is not None, _TILE),
        **options,
    )
    return y
