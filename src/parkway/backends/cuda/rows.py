"""Operations on one row at a time: embedding, norm, rotary positions with the KV write, and picking rows.

A row's program, block and warps depend on the width alone, never on how many rows there are.
"""

import torch
import triton
import triton.language as tl

from parkway.backends import HeadNorms, Rope
from parkway.backends.cuda.attention_kernels import PAGE
from parkway.backends.cuda.launch import wait

_MOST = tl.constexpr(3.3e38)


@triton.jit
def _embed(
    out_ptr, tokens_ptr, slots_ptr, last_ptr, table_ptr, stride, WIDTH: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    wait(PDL)
    token = tl.load(tokens_ptr + row)
    if token < 0:
        token = tl.load(last_ptr + tl.load(slots_ptr + row))
    lanes = tl.arange(0, triton.next_power_of_2(WIDTH))
    values = tl.load(table_ptr + token.to(tl.int64) * stride + lanes, mask=lanes < WIDTH)
    tl.store(out_ptr + row.to(tl.int64) * WIDTH + lanes, values, mask=lanes < WIDTH)


@triton.jit
def _take(out_ptr, x_ptr, stride, rows_ptr, WIDTH: tl.constexpr, PDL: tl.constexpr):
    row = tl.program_id(0)
    taken = tl.maximum(tl.load(rows_ptr + row), 0)
    wait(PDL)
    lanes = tl.arange(0, triton.next_power_of_2(WIDTH))
    values = tl.load(x_ptr + taken.to(tl.int64) * stride + lanes, mask=lanes < WIDTH)
    tl.store(out_ptr + row.to(tl.int64) * WIDTH + lanes, values, mask=lanes < WIDTH)


@triton.jit
def _rms_norm(
    out_ptr, x_ptr, stride, weight_ptr, residual_ptr, residual_stride, epsilon, WIDTH: tl.constexpr,
    RESIDUAL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, triton.next_power_of_2(WIDTH))
    weight = tl.load(weight_ptr + lanes, mask=lanes < WIDTH, other=0.0)
    wait(PDL)
    x = tl.load(x_ptr + row * stride + lanes, mask=lanes < WIDTH, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / WIDTH + epsilon)
    made = x * scale * weight
    if RESIDUAL:
        made += tl.load(residual_ptr + row * residual_stride + lanes, mask=lanes < WIDTH, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * WIDTH + lanes, made.to(tl.bfloat16), mask=lanes < WIDTH)


@triton.jit
def _lanes_of_pairs(WIDTH: tl.constexpr, DIMS: tl.constexpr, NEIGHBOURS: tl.constexpr):
    """Both lanes of every pair of a head, [1, pairs], which pairs exist and which are turned; the others fill up."""
    pair = tl.arange(0, triton.next_power_of_2(WIDTH // 2))[None, :]
    turned = pair < DIMS // 2
    if NEIGHBOURS:
        a, b = 2 * pair, 2 * pair + 1
    elif DIMS == WIDTH:
        a, b = pair, pair + WIDTH // 2
    else:
        a, b = tl.where(turned, pair, pair + DIMS // 2), pair + tl.where(turned, DIMS // 2, WIDTH // 2)
    return a, b, pair < WIDTH // 2, turned


@triton.jit
def _placed(
    x_ptr, to_ptr, lane_a, lane_b, real, turned, cos, sin, norm_ptr, epsilon, WIDTH: tl.constexpr, NORMS: tl.constexpr
):  # fmt: skip
    """Heads at x_ptr [heads, 1], normed if there are norms, turned, and written to to_ptr [heads, 1] as bf16."""
    a = tl.load(x_ptr + lane_a, mask=real, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + lane_b, mask=real, other=0.0).to(tl.float32)
    if NORMS:
        squares = tl.sum(a * a, 1) + tl.sum(b * b, 1)
        scale = tl.rsqrt(squares / WIDTH + epsilon)[:, None]
        a = a * scale * tl.load(norm_ptr + lane_a, mask=lane_a < WIDTH, other=0.0).to(tl.float32)
        b = b * scale * tl.load(norm_ptr + lane_b, mask=lane_b < WIDTH, other=0.0).to(tl.float32)
    tl.store(to_ptr + lane_a, tl.where(turned, a * cos - b * sin, a).to(tl.bfloat16), mask=real)
    tl.store(to_ptr + lane_b, tl.where(turned, a * sin + b * cos, b).to(tl.bfloat16), mask=real)


@triton.jit(do_not_specialize=["layer", "layers"])
def _rope_and_write(
    q_ptr, q_stride, k_ptr, k_stride, v_ptr, v_stride, turns_ptr, positions_ptr, slots_ptr, tables_ptr, table_stride,
    pool_ptr, layer, layers, q_norm_ptr, k_norm_ptr, epsilon,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, DIMS: tl.constexpr, NEIGHBOURS: tl.constexpr,
    NORMS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row's key and value of one head, and the queries that share them."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    position = tl.load(positions_ptr + row)
    lane_a, lane_b, real, turned = _lanes_of_pairs(WIDTH, DIMS, NEIGHBOURS)
    if position >= 0:
        page = tl.load(tables_ptr + tl.load(slots_ptr + row) * table_stride + position // PAGE).to(tl.int64)
        angle_ptr = turns_ptr + position * DIMS + 2 * tl.arange(0, triton.next_power_of_2(WIDTH // 2))[None, :]
        cos = tl.load(angle_ptr, mask=turned, other=1.0)
        sin = tl.load(angle_ptr + 1, mask=turned, other=0.0)
        wait(PDL)
        group = tl.arange(0, triton.next_power_of_2(GROUP))[:, None]
        queries = q_ptr + row * q_stride + (head * GROUP + group) * WIDTH
        some = real & (group < GROUP)
        _placed(queries, queries, lane_a, lane_b, some, turned, cos, sin, q_norm_ptr, epsilon, WIDTH, NORMS)
        one = tl.zeros((1, 1), tl.int64)
        place = ((page * layers + layer) * (2 * KV_HEADS) + head) * (PAGE * WIDTH) + position % PAGE * WIDTH
        key = k_ptr + row * k_stride + head * WIDTH + one
        to = pool_ptr + place + one
        _placed(key, to, lane_a, lane_b, real, turned, cos, sin, k_norm_ptr, epsilon, WIDTH, NORMS)
        lanes = tl.arange(0, triton.next_power_of_2(WIDTH))
        value = tl.load(v_ptr + row * v_stride + head * WIDTH + lanes, mask=lanes < WIDTH, other=0.0).to(tl.float32)
        # What is not finite must not reach rows that don't see it, through a weight of 0.
        value = tl.minimum(tl.maximum(tl.where(value == value, value, 0.0), -_MOST), _MOST).to(tl.bfloat16)
        tl.store(pool_ptr + place + KV_HEADS * PAGE * WIDTH + lanes, value, mask=lanes < WIDTH)
    else:
        wait(PDL)


def embed(
    tokens: torch.Tensor, slots: torch.Tensor, last_tokens: torch.Tensor, table: torch.Tensor, *, pdl: int = 0
) -> torch.Tensor:
    """Rows of table bf16 [vocabulary, width] for int32 tokens [rows]; for -1, that of the slot's last token."""
    width = table.shape[1]
    out = torch.empty(len(tokens), width, dtype=torch.bfloat16, device=table.device)
    _embed[(len(tokens),)](out, tokens, slots, last_tokens, table, table.stride(0), width, pdl, **_options(width, pdl))
    return out


def take(x: torch.Tensor, rows: torch.Tensor, *, pdl: int = 0) -> torch.Tensor:
    """x[rows] of bf16 [.., width]; row 0 for a negative one."""
    out = torch.empty(len(rows), x.shape[1], dtype=torch.bfloat16, device=x.device)
    _take[(len(rows),)](out, x, x.stride(0), rows, x.shape[1], pdl, **_options(x.shape[1], pdl))
    return out


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    residual: torch.Tensor | None = None,
    *,
    pdl: int = 0,
) -> torch.Tensor:
    """x / sqrt(mean(x²) + epsilon) * weight of bf16 [rows, width] in fp32, and the residual added where there is one,
    rounded once; weight is float32 [width]."""
    out = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
    width, added = x.shape[1], x if residual is None else residual
    places = (out, x, x.stride(0), weight, added, added.stride(0), epsilon)
    _rms_norm[(len(x),)](*places, width, residual is not None, pdl, **_options(width, pdl))
    return out


def rope_and_write(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    turns: torch.Tensor | None,
    positions: torch.Tensor,
    slots: torch.Tensor,
    tables: torch.Tensor,
    pool: torch.Tensor,
    layer: int,
    rope: Rope | None,
    norms: HeadNorms | None = None,
    *,
    pdl: int = 0,
) -> torch.Tensor:
    """Norms and turns the heads of q, in place, and of k, and writes k and v to the rows' pages. Returns q. Without a
    rope nothing is turned.

    q, k and v are bf16 [rows, heads x head_dim] with any distance between rows; turns are `Rope.turns` on the device.
    A row at position -1 is nobody's: nothing of it is changed or written.
    """
    kv_heads, head_dim = pool.shape[3], pool.shape[5]
    group = q.shape[1] // (kv_heads * head_dim)
    turned = q if turns is None else turns  # of which nothing is read
    q_norm, k_norm, epsilon = (norms.q, norms.k, norms.epsilon) if norms else (turned, turned, 0.0)
    dims, neighbours = (rope.dims, rope.pairs == "neighbours") if rope else (0, False)
    _rope_and_write[(len(q), kv_heads)](
        *(q, q.stride(0), k, k.stride(0), v, v.stride(0), turned, positions, slots, tables, tables.stride(0)),
        *(pool, layer, pool.shape[1], q_norm, k_norm, epsilon),
        *(kv_heads, group, head_dim, dims, neighbours, norms is not None, pdl),
        **_options(group * head_dim, pdl),
    )
    return q


def _options(width: int, pdl: int) -> dict[str, int | bool]:
    """Sixteen values for each thread, if there are enough and as long as a program has so many threads."""
    warps = min(max(triton.next_power_of_2(width) // 512, 1), 16)
    return {"num_warps": warps, "enable_fp_fusion": False, "launch_pdl": bool(pdl)}
