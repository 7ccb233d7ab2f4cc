"""Operations on each value of a row by itself. Whatever programs share a row, a value is computed alone."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl

from parkway.backends.cuda.launch import wait

_TILE = 1024


@triton.jit
def _scaled(x_ptr, scale, WIDTH: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr):
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    at = x_ptr + tl.program_id(0).to(tl.int64) * WIDTH + column
    wait(PDL)
    x = tl.load(at, mask=column < WIDTH).to(tl.float32) * scale
    tl.store(at, x.to(x_ptr.dtype.element_ty), mask=column < WIDTH)


@triton.jit
def _capped(x_ptr, cap, inverse, WIDTH: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr):
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    at = x_ptr + tl.program_id(0).to(tl.int64) * WIDTH + column
    wait(PDL)
    x = tl.load(at, mask=column < WIDTH) * inverse
    tl.store(at, cap * (2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0), mask=column < WIDTH)


@triton.jit
def _of_two(
    out_ptr, x_ptr, x_stride, other_ptr, other_stride, WIDTH: tl.constexpr, GATE: tl.constexpr, ONE: tl.constexpr,
    TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """x * sigmoid(other) if GATE, other + x if not. ONE: other has one value for each row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < WIDTH
    wait(PDL)
    x = tl.load(x_ptr + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    place = tl.zeros_like(column) if ONE else column
    other = tl.load(other_ptr + row * other_stride + place, mask=inside, other=0.0).to(tl.float32)
    made = x / (1.0 + tl.exp(-other)) if GATE else other + x
    tl.store(out_ptr + row * WIDTH + column, made.to(out_ptr.dtype.element_ty), mask=inside)


def scaled(x: torch.Tensor, scale: float, *, pdl: int = 0) -> torch.Tensor:
    """bf16 x [rows, width], contiguous, times `scale`, in place."""
    _scaled[_grid(x)](x, scale, x.shape[1], _TILE, pdl, **_options(pdl))
    return x


def capped(x: torch.Tensor, cap: float, *, pdl: int = 0) -> torch.Tensor:
    """cap * tanh(x / cap) of float32 x [rows, width], contiguous, in place."""
    _capped[_grid(x)](x, cap, 1 / cap, x.shape[1], _TILE, pdl, **_options(pdl))
    return x


def sigmoid_gate(x: torch.Tensor, gate: torch.Tensor, *, pdl: int = 0) -> torch.Tensor:
    """x * sigmoid(gate), bf16 [rows, width]; the gate is as wide as x, or 1 wide. Rows lie any distance apart."""
    return _made(x, gate, True, pdl)


def add(x: torch.Tensor, residual: torch.Tensor, *, pdl: int = 0) -> torch.Tensor:
    """residual + x, bf16 [rows, width], rounded once. Rows lie any distance apart."""
    return _made(x, residual, False, pdl)


def _made(x: torch.Tensor, other: torch.Tensor, gate: bool, pdl: int) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
    places = (out, x, x.stride(0), other, other.stride(0))
    _of_two[_grid(x)](*places, x.shape[1], gate, other.shape[1] < x.shape[1], _TILE, pdl, **_options(pdl))
    return out


def _grid(x: torch.Tensor) -> tuple[int, int]:
    return len(x), triton.cdiv(x.shape[1], _TILE)


def _options(pdl: int) -> dict[str, Any]:
    return {"num_warps": 4, "enable_fp_fusion": False, "launch_pdl": bool(pdl)}
