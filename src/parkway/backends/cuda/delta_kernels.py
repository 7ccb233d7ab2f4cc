"""The kernels of the delta rule: `prepare` for each block by itself, `rule` for each chat's blocks in order.

fp32 goes through the matrix unit as two bf16, which are good to 16 bits. [row, earlier] tiles are triangles: what lies
above is exactly 0.
"""

import triton
import triton.language as tl

from parkway.backends.cuda.delta_rows import finite
from parkway.backends.cuda.launch import wait

BLOCK_ROWS = 16
"""Rows between two anchors: a constant of the contract, bits depend on it."""
BLOCK = tl.constexpr(BLOCK_ROWS)
LEAST_LOG = tl.constexpr(-1.0e30)  # of a decay: e^ of it is 0, and a block's sum of such is still a number


@triton.jit
def _halves(x):
    """fp32 as a sum of two bf16, the larger first."""
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _times_halves(high, low, y, total):
    """total + (high + low) y of fp32 y, but for the product of what is small of both."""
    y_high, y_low = _halves(y)
    return tl.dot(high, y_high, tl.dot(high, y_low, tl.dot(low, y_high, total)))


@triton.jit
def _softplus(x):
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))


@triton.jit
def _k_head(head, K_HEADS: tl.constexpr, V_HEADS: tl.constexpr, TILED: tl.constexpr):
    """The head of k that a head of v uses, and whether it is the first that does."""
    if TILED:
        k_head, first = head % K_HEADS, head < K_HEADS
    else:
        k_head, first = head // (V_HEADS // K_HEADS), head % (V_HEADS // K_HEADS) == 0
    return k_head, first


@triton.jit
def _inverse(scores):
    """The inverse of 1 + scores, by taking row j's share from the rows below it, j rising."""
    place = tl.arange(0, BLOCK)
    column, line = place[None, :], place[:, None]
    made = tl.where(column == line, 1.0, 0.0)
    for j in tl.static_range(BLOCK - 1):
        shares = tl.sum(tl.where(column == j, scores, 0.0), 1)
        row = tl.sum(tl.where(line == j, made, 0.0), 0)
        made = tl.fma(-shares[:, None], row[None, :], made)
    return made


@triton.jit
def _gains(a, b, decay, bias, gains_ptr, old, new):
    """Log-decay and beta of the block's rows, [BLOCK]: of earlier steps' as they were kept, 0 where there is no row."""
    place = tl.arange(0, BLOCK)
    logs = tl.maximum(finite(decay * _softplus(a.to(tl.float32) + bias)), LEAST_LOG)
    beta = finite(1.0 / (1.0 + tl.exp(-b.to(tl.float32))))
    kept_logs = tl.load(gains_ptr + place, mask=old, other=0.0)
    kept_beta = tl.load(gains_ptr + BLOCK + place, mask=old, other=0.0)
    return tl.where(new, logs, kept_logs), tl.where(new, beta, kept_beta)


@triton.jit
def prepare(
    block_keys_ptr, shares_ptr, factors_ptr, mixed_ptr, a_ptr, a_stride, b_ptr, b_stride, decay_ptr, bias_ptr,
    runs_ptr, blocks_ptr, keys_ptr, keys_stride, gains_ptr, gains_stride,
    K_HEADS: tl.constexpr, V_HEADS: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr, TILED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One block of one head of v: what its rows take of each other, and how much has decayed."""
    K_WIDTH: tl.constexpr = K_HEADS * K_DIM
    CHANNELS: tl.constexpr = 2 * K_WIDTH + V_HEADS * V_DIM
    block, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    k_head, first = _k_head(head, K_HEADS, V_HEADS, TILED)
    number = tl.load(blocks_ptr + block * 2)
    run = runs_ptr + tl.maximum(number, 0) * 5
    row, tokens, slot, start = (
        tl.load(run).to(tl.int64),
        tl.load(run + 1),
        tl.load(run + 2).to(tl.int64),
        tl.load(run + 3),
    )
    base = (start // BLOCK + tl.load(blocks_ptr + block * 2 + 1)) * BLOCK
    decay, bias = tl.load(decay_ptr + head), tl.load(bias_ptr + head)
    place, depth = tl.arange(0, BLOCK), tl.arange(0, triton.next_power_of_2(K_DIM))
    position, real = base + place, (depth < K_DIM)[None, :]
    wait(PDL)
    if number >= 0:
        old, new = position < start, (position >= start) & (position < start + tokens)
        rows = row + position - start
        mixed = mixed_ptr + rows[:, None] * CHANNELS + k_head * K_DIM + depth[None, :]
        kept = keys_ptr + slot * keys_stride + place[:, None] * K_WIDTH + k_head * K_DIM + depth[None, :]
        q = tl.load(mixed, mask=new[:, None] & real, other=0.0)
        k = tl.load(mixed + K_WIDTH, mask=new[:, None] & real, other=0.0)
        k = tl.where(old[:, None], tl.load(kept, mask=old[:, None] & real, other=0.0), k)
        a = tl.load(a_ptr + rows * a_stride + head, mask=new, other=0.0)
        b = tl.load(b_ptr + rows * b_stride + head, mask=new, other=0.0)
        gains = gains_ptr + slot * gains_stride + head * (2 * BLOCK)
        logs, beta = _gains(a, b, decay, bias, gains, old, new)
        # Each row's sum in one tree, to which what comes later adds an exact 0.
        seen = place[:, None] >= place[None, :]
        g = tl.sum(tl.where(seen, logs[None, :], 0.0), 1)
        g_earlier = tl.sum(tl.where(place[:, None] <= place[None, :], logs[:, None], 0.0), 0)
        decayed = tl.where(seen, tl.exp(tl.where(seen, g[:, None] - g_earlier[None, :], 0.0)), 0.0)
        nothing = tl.zeros((BLOCK, BLOCK), tl.float32)
        of_q = tl.dot(q, tl.trans(k), nothing) * decayed
        of_k = tl.dot(k, tl.trans(k), nothing) * decayed * beta[:, None]
        inverse = _inverse(tl.where(place[:, None] > place[None, :], of_k, 0.0))
        beta_earlier = tl.sum(tl.where(place[:, None] == place[None, :], beta[:, None], 0.0), 0)
        shares = shares_ptr + (block * V_HEADS + head) * (4 * BLOCK * BLOCK) + place[:, None] * BLOCK + place[None, :]
        high, low = _halves(inverse * beta_earlier[None, :])
        tl.store(shares, high)
        tl.store(shares + BLOCK * BLOCK, low)
        high, low = _halves(of_q)
        tl.store(shares + 2 * BLOCK * BLOCK, high)
        tl.store(shares + 3 * BLOCK * BLOCK, low)
        factors = factors_ptr + (block * V_HEADS + head) * (4 * BLOCK) + place
        tl.store(factors, tl.exp(g))
        tl.store(factors + BLOCK, tl.exp(tl.sum(logs, 0) - g))
        tl.store(factors + 2 * BLOCK, logs)
        tl.store(factors + 3 * BLOCK, beta)
        if first:
            to = block_keys_ptr + (block * K_HEADS + k_head) * (BLOCK * K_DIM) + place[:, None] * K_DIM + depth[None, :]
            tl.store(to, k, mask=real)


@triton.jit
def _keep_inputs(
    q_ptr, q_stride, k_ptr, k_stride, v_ptr, v_stride, kept_ptr, row, start, tokens,
    K_WIDTH: tl.constexpr, V_WIDTH: tl.constexpr, TAPS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """This program's share of the channels of the last rows, which the next rows' convolutions need."""
    CHANNELS: tl.constexpr = 2 * K_WIDTH + V_WIDTH
    SHARE: tl.constexpr = triton.next_power_of_2((CHANNELS + PROGRAMS - 1) // PROGRAMS)
    lanes = tl.program_id(0) * SHARE + tl.arange(0, SHARE)
    of_q, of_k = lanes < K_WIDTH, (lanes >= K_WIDTH) & (lanes < 2 * K_WIDTH)
    of_v = (lanes >= 2 * K_WIDTH) & (lanes < CHANNELS)
    for nth in tl.static_range(TAPS - 1):
        if nth < tokens:
            at = row + tokens - 1 - nth
            q = tl.load(q_ptr + at * q_stride + lanes, mask=of_q, other=0.0)
            k = tl.load(k_ptr + at * k_stride + lanes - K_WIDTH, mask=of_k, other=0.0)
            v = tl.load(v_ptr + at * v_stride + lanes - 2 * K_WIDTH, mask=of_v, other=0.0)
            to = kept_ptr + (start + tokens - 1 - nth) % (TAPS - 1) * CHANNELS + lanes
            tl.store(to, tl.where(of_q, q, tl.where(of_k, k, v)), mask=lanes < CHANNELS)


@triton.jit
def _triangle(shares_ptr, which: tl.constexpr):
    place = tl.arange(0, BLOCK)
    return tl.load(shares_ptr + which * BLOCK * BLOCK + place[:, None] * BLOCK + place[None, :])


@triton.jit
def rule(
    out_ptr, block_keys_ptr, shares_ptr, factors_ptr, mixed_ptr, q_ptr, q_stride, k_ptr, k_stride, v_ptr, v_stride,
    runs_ptr, matrix_ptr, matrix_stride, wrongs_ptr, wrongs_stride, gains_ptr, gains_stride, keys_ptr, keys_stride,
    kept_ptr, kept_stride,
    K_HEADS: tl.constexpr, V_HEADS: tl.constexpr, K_DIM: tl.constexpr, V_DIM: tl.constexpr, TILED: tl.constexpr,
    TAPS: tl.constexpr, LANES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Some lanes of one head of v, over one run of rows; then what the next step needs is kept."""
    K_WIDTH: tl.constexpr = K_HEADS * K_DIM
    V_WIDTH: tl.constexpr = V_HEADS * V_DIM
    CHANNELS: tl.constexpr = 2 * K_WIDTH + V_WIDTH
    TILES: tl.constexpr = V_DIM // LANES
    head, tile = tl.program_id(0) // TILES, tl.program_id(0) % TILES
    k_head, first = _k_head(head, K_HEADS, V_HEADS, TILED)
    run = runs_ptr + tl.program_id(1) * 5
    row, tokens, slot, start = (
        tl.load(run).to(tl.int64),
        tl.load(run + 1),
        tl.load(run + 2).to(tl.int64),
        tl.load(run + 3),
    )
    block = tl.load(run + 4).to(tl.int64)
    place, depth = tl.arange(0, BLOCK), tl.arange(0, triton.next_power_of_2(K_DIM))
    lanes, real = tile * LANES + tl.arange(0, LANES), depth < K_DIM
    in_matrix = depth[:, None] * V_DIM + lanes[None, :]
    wrongs_ptr += slot * wrongs_stride + head * (BLOCK * V_DIM) + place[:, None] * V_DIM + lanes[None, :]
    end = start + tokens
    wait(PDL)
    if tokens > 0:
        # A chat's first block begins with S = 0, whatever memory holds.
        matrix = matrix_ptr + slot * matrix_stride + head * (K_DIM * V_DIM)
        s = tl.load(matrix + in_matrix, mask=real[:, None] & (start >= BLOCK), other=0.0)
        for base in range(start // BLOCK * BLOCK, end, BLOCK):
            position = base + place
            new = (position >= start) & (position < end)
            rows = row + position - start
            key = block_keys_ptr + (block * K_HEADS + k_head) * (BLOCK * K_DIM)
            k = tl.load(key + place[:, None] * K_DIM + depth[None, :], mask=real[None, :], other=0.0)
            q_at = mixed_ptr + rows[:, None] * CHANNELS + k_head * K_DIM + depth[None, :]
            q = tl.load(q_at, mask=new[:, None] & real[None, :], other=0.0)
            v_at = mixed_ptr + rows[:, None] * CHANNELS + 2 * K_WIDTH + head * V_DIM + lanes[None, :]
            v = tl.load(v_at, mask=new[:, None], other=0.0)
            shares = shares_ptr + (block * V_HEADS + head) * (4 * BLOCK * BLOCK)
            factors = factors_ptr + (block * V_HEADS + head) * (4 * BLOCK)
            since, left = tl.load(factors + place)[:, None], tl.load(factors + BLOCK + place)[:, None]
            whole = tl.load(factors + BLOCK - 1)
            high, low = _halves(s)
            nothing = tl.zeros((BLOCK, LANES), tl.float32)
            of_k = tl.dot(k, high, tl.dot(k, low, nothing))
            of_q = tl.dot(q, high, tl.dot(q, low, nothing))
            kept = tl.load(wrongs_ptr, mask=(position < start)[:, None], other=0.0)
            wrong = tl.where(new[:, None], finite(v.to(tl.float32) - since * of_k), kept)
            u = finite(_times_halves(_triangle(shares, 0), _triangle(shares, 1), wrong, nothing))
            made = _times_halves(_triangle(shares, 2), _triangle(shares, 3), u, since * of_q)
            out = out_ptr + rows[:, None] * V_WIDTH + head * V_DIM + lanes[None, :]
            tl.store(out, made.to(tl.bfloat16), mask=new[:, None])
            # In vain for a block that has not ended; but what a branch needs would not be loaded ahead.
            u_high, u_low = _halves(u * left)
            columns = tl.trans(k)
            ended = tl.full((1, 1), BLOCK, tl.int32) + base <= end
            s = tl.where(ended, tl.dot(columns, u_high, tl.dot(columns, u_low, s * whole)), s)
            if base + BLOCK > end:
                tl.store(wrongs_ptr, wrong, mask=new[:, None])
                if tile == 0:
                    gains = gains_ptr + slot * gains_stride + head * (2 * BLOCK) + place
                    tl.store(gains, tl.load(factors + 2 * BLOCK + place), mask=new)
                    tl.store(gains + BLOCK, tl.load(factors + 3 * BLOCK + place), mask=new)
                    if first:
                        to = keys_ptr + slot * keys_stride + place[:, None] * K_WIDTH + k_head * K_DIM + depth[None, :]
                        tl.store(to, k, mask=new[:, None] & real[None, :])
            block += 1
        if end // BLOCK > start // BLOCK:
            # Read anew, or addresses would take registers all along.
            matrix = matrix_ptr + tl.load(run + 2).to(tl.int64) * matrix_stride + head * (K_DIM * V_DIM)
            tl.store(matrix + in_matrix, s, mask=real[:, None])
        kept_ptr += slot * kept_stride
        _keep_inputs(
            q_ptr, q_stride, k_ptr, k_stride, v_ptr, v_stride, kept_ptr, row, start, tokens, K_WIDTH, V_WIDTH, TAPS,
            V_HEADS * TILES,
        )  # fmt: skip
