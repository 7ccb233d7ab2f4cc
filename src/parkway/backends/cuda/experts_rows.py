"""Rows of a mixture of experts on their way: to their experts' places, and back to one row, in the order of choice,
which is normed at once if that is what comes next."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from parkway.backends.cuda.experts_route import Routes
from parkway.backends.cuda.launch import wait

_TILE = 1024
"""Values of a row that a program has: each is computed by itself, so any number gives the same bits."""


@triton.jit
def _spread(x_ptr, x_stride, places_ptr, y_ptr, WIDTH: tl.constexpr, CHOSEN: tl.constexpr, TILE: tl.constexpr,
            PDL: tl.constexpr):  # fmt: skip
    row, lane = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    wait(PDL)
    values = tl.load(x_ptr + row * x_stride + lane, mask=lane < WIDTH)
    for c in tl.static_range(CHOSEN):
        place = tl.load(places_ptr + row * CHOSEN + c).to(tl.int64)
        tl.store(y_ptr + place * WIDTH + lane, values, mask=lane < WIDTH)


@triton.jit
def _sums(y_ptr, places_ptr, weights_ptr, residual_ptr, residual_stride, row, lane, WIDTH: tl.constexpr,
          CHOSEN: tl.constexpr):  # fmt: skip
    """Some lanes of a row's results times their weights, then of the residual, added in this order: bf16."""
    total = tl.zeros(lane.shape, tl.float32)
    for c in tl.static_range(CHOSEN):
        place = tl.load(places_ptr + row * CHOSEN + c).to(tl.int64)
        result = tl.load(y_ptr + place * WIDTH + lane, mask=lane < WIDTH, other=0.0).to(tl.float32)
        total += tl.load(weights_ptr + row * CHOSEN + c) * result
    residual = tl.load(residual_ptr + row * residual_stride + lane, mask=lane < WIDTH, other=0.0)
    return (total + residual.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _combine(y_ptr, places_ptr, weights_ptr, residual_ptr, residual_stride, out_ptr, WIDTH: tl.constexpr,
             CHOSEN: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    row, lane = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    wait(PDL)
    made = _sums(y_ptr, places_ptr, weights_ptr, residual_ptr, residual_stride, row, lane, WIDTH, CHOSEN)
    tl.store(out_ptr + row * WIDTH + lane, made, mask=lane < WIDTH)


@triton.jit
def _combine_norm(y_ptr, places_ptr, weights_ptr, residual_ptr, residual_stride, out_ptr, norm_ptr, normed_ptr, epsilon,
                  WIDTH: tl.constexpr, CHOSEN: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, triton.next_power_of_2(WIDTH))
    norm = tl.load(norm_ptr + lane, mask=lane < WIDTH, other=0.0)
    wait(PDL)
    made = _sums(y_ptr, places_ptr, weights_ptr, residual_ptr, residual_stride, row, lane, WIDTH, CHOSEN)
    tl.store(out_ptr + row * WIDTH + lane, made, mask=lane < WIDTH)
    x = tl.where(lane < WIDTH, made.to(tl.float32), 0.0)
    scale = tl.rsqrt(tl.sum(x * x, 0) / WIDTH + epsilon)
    tl.store(normed_ptr + row * WIDTH + lane, (x * scale * norm).to(tl.bfloat16), mask=lane < WIDTH)


@dataclass(slots=True, eq=False)
class Sum:
    """Rows as what they are the sum of: results bf16 [places, width] and a residual bf16 [rows, width]. Whoever wants
    them first often wants their norm too, which then takes no launch of its own."""

    results: torch.Tensor
    routes: Routes
    residual: torch.Tensor
    _made: torch.Tensor | None = None

    def rows(self, *, pdl: int = 0) -> torch.Tensor:
        """bf16 [rows, width]."""
        if self._made is None:
            self._made = combine(self.results, self.routes, self.residual, pdl=pdl)
        return self._made

    def normed(self, weight: torch.Tensor, epsilon: float, *, pdl: int = 0) -> torch.Tensor:
        """`rows.rms_norm` of the rows, bit for bit the same however many there are."""
        y, residual, routes = self.results, self.residual, self.routes
        (rows, width), chosen = residual.shape, routes.places.shape[1]
        self._made, normed = y.new_empty((rows, width)), y.new_empty((rows, width))
        _combine_norm[(rows,)](
            *(y, routes.places, routes.weights, residual, residual.stride(0), self._made, weight, normed, epsilon),
            *(width, chosen, pdl),
            **_options(pdl) | {"num_warps": min(max(triton.next_power_of_2(width) // 256, 1), 16)},
        )
        return normed


def spread(x: torch.Tensor, routes: Routes, *, pdl: int = 0) -> torch.Tensor:
    """Every row at each of its places, bf16 [rows * chosen, width]."""
    rows, width = x.shape
    chosen = routes.places.shape[1]
    y = x.new_empty((rows * chosen, width))
    _spread[(rows, triton.cdiv(width, _TILE))](
        x, x.stride(0), routes.places, y, width, chosen, _TILE, pdl, **_options(pdl)
    )
    return y


def combine(y: torch.Tensor, routes: Routes, residual: torch.Tensor, *, pdl: int = 0) -> torch.Tensor:
    """residual + a row's results y [places, width] times their weights, in fp32 and in the order of choice; rounded
    once to bf16."""
    rows, width = residual.shape
    out = y.new_empty((rows, width))
    _combine[(rows, triton.cdiv(width, _TILE))](
        *(y, routes.places, routes.weights, residual, residual.stride(0), out),
        *(width, routes.places.shape[1], _TILE, pdl),
        **_options(pdl),
    )
    return out


def _options(pdl: int) -> dict[str, Any]:
    return {"num_warps": 4, "enable_fp_fusion": False, "launch_pdl": bool(pdl)}
