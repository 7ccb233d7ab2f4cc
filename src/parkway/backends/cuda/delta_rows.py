"""What a gated delta net does to each row by itself: the convolution with its norms before the rule, the norm and gate
after it.

A row's program, block and warps depend on the shape alone, never on how many rows there are. Knows nothing of S.
"""

import torch
import triton
import triton.language as tl

from parkway.backends.cuda.launch import wait

_TILE_LANES = 1024
_MOST = tl.constexpr(3.0e38)


@triton.jit
def finite(x):
    """x or a large number, 0 for NaN: what is not finite must not reach an earlier row through a factor of 0."""
    return tl.minimum(tl.maximum(tl.where(x == x, x, 0.0), -_MOST), _MOST)


@triton.jit
def _heads(tile, HEADS: tl.constexpr, DIM: tl.constexpr, TILE: tl.constexpr):
    """Places of a tile's lanes in a row of heads, [TILE, lanes], and which exist."""
    head = tile * TILE + tl.arange(0, TILE)[:, None]
    lane = tl.arange(0, triton.next_power_of_2(DIM))[None, :]
    return head * DIM + lane, (head < HEADS) & (lane < DIM)


@triton.jit
def _convolved(
    x_ptr, x_stride, kept_ptr, taps_ptr, slots_ptr, row, slot, position, channel, at, exist, CHANNELS: tl.constexpr,
    TAPS: tl.constexpr,
):  # fmt: skip
    """silu of the convolution, from the oldest tap on. `channel`: which x's first is; `at`: places in a row of x."""
    total = tl.zeros(at.shape, tl.float32)
    for newer in tl.static_range(TAPS):
        back = TAPS - 1 - newer
        before = row - back
        here = (before >= 0) & (tl.load(slots_ptr + tl.maximum(before, 0)) == slot) & (position >= back)
        old = (position >= back) & (here == 0)
        kept = kept_ptr + (position - back) % (TAPS - 1) * CHANNELS + channel + at
        fresh = tl.load(x_ptr + before * x_stride + at, mask=exist & here, other=0.0)
        x = tl.where(here, fresh, tl.load(kept, mask=exist & old, other=0.0))
        weight = tl.load(taps_ptr + newer * CHANNELS + channel + at, mask=exist, other=0.0)
        total = tl.fma(x.to(tl.float32), weight, total)
    return finite(total / (1.0 + tl.exp(-total)))


@triton.jit
def _unit(x, epsilon, scale):
    return x * (tl.rsqrt(tl.sum(x * x, 1) + epsilon) * scale)[:, None]


@triton.jit
def _inputs(
    out_ptr, q_ptr, q_stride, k_ptr, k_stride, v_ptr, v_stride, positions_ptr, slots_ptr, kept_ptr, slot_stride,
    taps_ptr, epsilon, scale,
    K_HEADS: tl.constexpr, V_HEADS: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr, TAPS: tl.constexpr,
    K_TILE: tl.constexpr, V_TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A tile of heads of q, k or v of one row."""
    K_TILES: tl.constexpr = (K_HEADS + K_TILE - 1) // K_TILE
    K_WIDTH: tl.constexpr = K_HEADS * K_DIM
    CHANNELS: tl.constexpr = 2 * K_WIDTH + V_HEADS * V_DIM
    row, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    position, slot = tl.load(positions_ptr + row), tl.load(slots_ptr + row)
    kept_ptr += slot.to(tl.int64) * slot_stride
    out_ptr += row * CHANNELS
    wait(PDL)
    if position >= 0:
        if tile < K_TILES:
            at, exist = _heads(tile, K_HEADS, K_DIM, K_TILE)
            made = _convolved(
                q_ptr, q_stride, kept_ptr, taps_ptr, slots_ptr, row, slot, position, 0, at, exist, CHANNELS, TAPS
            )
            tl.store(out_ptr + at, _unit(made, epsilon, scale).to(tl.bfloat16), mask=exist)
        elif tile < 2 * K_TILES:
            at, exist = _heads(tile - K_TILES, K_HEADS, K_DIM, K_TILE)
            made = _convolved(
                k_ptr, k_stride, kept_ptr, taps_ptr, slots_ptr, row, slot, position, K_WIDTH, at, exist, CHANNELS, TAPS
            )
            tl.store(out_ptr + K_WIDTH + at, _unit(made, epsilon, 1.0).to(tl.bfloat16), mask=exist)
        else:  # names of their own: tiles of v may be of another size, and branches must agree on what they name alike
            at_v, exist_v = _heads(tile - 2 * K_TILES, V_HEADS, V_DIM, V_TILE)
            made_v = _convolved(
                v_ptr, v_stride, kept_ptr, taps_ptr, slots_ptr, row, slot, position, 2 * K_WIDTH, at_v, exist_v,
                CHANNELS, TAPS,
            )  # fmt: skip
            tl.store(out_ptr + 2 * K_WIDTH + at_v, made_v.to(tl.bfloat16), mask=exist_v)


@triton.jit
def _gated_norm(
    out_ptr, x_ptr, x_stride, gate_ptr, gate_stride, weight_ptr, epsilon, HEADS: tl.constexpr, DIM: tl.constexpr,
    TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at, exist = _heads(tl.program_id(1), HEADS, DIM, TILE)
    lane = tl.arange(0, triton.next_power_of_2(DIM))[None, :]
    weight = tl.load(weight_ptr + lane, mask=lane < DIM, other=0.0)
    wait(PDL)
    x = tl.load(x_ptr + row * x_stride + at, mask=exist, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row * gate_stride + at, mask=exist, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 1) / DIM + epsilon)[:, None]
    made = x * scale * weight * (gate / (1.0 + tl.exp(-gate)))
    tl.store(out_ptr + row * (HEADS * DIM) + at, made.to(tl.bfloat16), mask=exist)


def inputs(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    kept: torch.Tensor,
    taps: torch.Tensor,
    heads: tuple[int, int, int, int],
    epsilon: float,
    *,
    pdl: int = 0,
) -> torch.Tensor:
    """q, k and v of the delta rule side by side, bf16 [rows, channels], of bf16 rows with any distance between them.

    kept bf16 [slots, taps - 1, channels]: inputs of earlier positions p at p % (taps - 1). taps float32 [taps,
    channels], the oldest first. heads: k_heads, v_heads, k_dim, v_dim. A row at position -1 is nobody's; of it nothing
    is made.
    """
    k_heads, v_heads, k_dim, v_dim = heads
    channels = 2 * k_heads * k_dim + v_heads * v_dim
    out = torch.empty(len(q), channels, dtype=torch.bfloat16, device=q.device)
    k_tile, v_tile = tile_heads(k_heads, k_dim), tile_heads(v_heads, v_dim)
    grid = (len(q), 2 * triton.cdiv(k_heads, k_tile) + triton.cdiv(v_heads, v_tile))
    _inputs[grid](
        *(out, q, q.stride(0), k, k.stride(0), v, v.stride(0), positions, slots, kept, kept.stride(0), taps),
        *(epsilon, k_dim**-0.5, *heads, kept.shape[1] + 1, k_tile, v_tile, pdl),
        **_options(pdl),
    )
    return out


def gated_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, epsilon: float, *, pdl: int = 0
) -> torch.Tensor:
    """rms_norm of every head of x, as wide as float32 `weight`, times silu(gate): bf16 [rows, width], in fp32 rounded
    once."""
    out = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
    dim = len(weight)
    heads = x.shape[1] // dim
    tile = tile_heads(heads, dim)
    places = (out, x, x.stride(0), gate, gate.stride(0), weight, epsilon)
    _gated_norm[(len(x), triton.cdiv(heads, tile))](*places, heads, dim, tile, pdl, **_options(pdl))
    return out


def tile_heads(heads: int, dim: int) -> int:
    """Heads of a program: about a thousand lanes."""
    most: int = max(1, _TILE_LANES // triton.next_power_of_2(dim))
    return min(int(triton.next_power_of_2(heads)), most)


def _options(pdl: int) -> dict[str, int | bool]:
    return {"num_warps": 4, "enable_fp_fusion": False, "launch_pdl": bool(pdl)}
