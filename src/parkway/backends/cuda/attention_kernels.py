"""Attention's kernels: one for few rows, whose splits run side by side, and one for many rows, which walks them.

Both are made of the same pieces, so a row's sequence of operations is the same in both. Rows of one tile may see
different positions: one that sees nothing of 64 keys multiplies what it has by exactly 1 and adds exactly 0, and one
that has seen nothing yet multiplies zeros by zero. `seen` is what a row has gathered: (largest score, sum, weighted
values), of all splits so far or of one.
"""

import math

import triton
import triton.language as tl

from parkway.backends.cuda.launch import wait
from parkway.plan.step import PAGE_TOKENS

PAGE = tl.constexpr(PAGE_TOKENS)
LOG2_E = tl.constexpr(1 / math.log(2))
NEVER = tl.constexpr(float("-inf"))
FOLD_STAGES = tl.constexpr(7)  # so many less one of a tile's splits are on their way while one is merged


@triton.jit
def _lanes(WIDTH: tl.constexpr):
    """A head's lanes up to a power of two, [1, lanes], and which of them exist."""
    lanes = tl.arange(0, triton.next_power_of_2(WIDTH))[None, :]
    return lanes, lanes < WIDTH


@triton.jit
def _lines(row, tokens, head, GROUP: tl.constexpr, HEIGHT: tl.constexpr):
    """Row and head of every line of a tile, and whether there is such a row."""
    line = tl.arange(0, HEIGHT)
    token = line // GROUP
    return row + token, head * GROUP + line % GROUP, token < tokens


@triton.jit
def _queries(q_ptr, q_stride, rows, heads, exist, WIDTH: tl.constexpr):
    """A tile of q, bf16 [HEIGHT, lanes]; zeros where there is nothing."""
    lanes, real = _lanes(WIDTH)
    at = rows.to(tl.int64)[:, None] * q_stride + heads[:, None] * WIDTH + lanes
    return tl.load(q_ptr + at, mask=exist[:, None] & real, other=0.0)


@triton.jit
def _nothing(HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """`seen` of rows that have seen no position."""
    top = tl.full((HEIGHT,), NEVER, tl.float32)
    return top, tl.zeros((HEIGHT,), tl.float32), tl.zeros((HEIGHT, triton.next_power_of_2(WIDTH)), tl.float32)


@triton.jit
def _new_split(HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """The same at a split's beginning, with the sum as `_walk` adds it up: [HEIGHT, 8], all columns equal."""
    top, _, values = _nothing(HEIGHT, WIDTH)
    return top, tl.zeros((HEIGHT, 8), tl.float32), values


@triton.jit
def _first_row(page, layer, layers, head, KV_HEADS: tl.constexpr):
    """Where a page's keys of a head begin in the pool as rows [.., WIDTH]; its values are KV_HEADS pages further on."""
    return ((page * layers + layer) * (2 * KV_HEADS) + head) * PAGE


@triton.jit
def _written(pool_ptr, first_row, written, KV_HEADS: tl.constexpr, WIDTH: tl.constexpr):
    """Keys and values of a page and head, bf16 [64, lanes]; zeros from token `written` on, where anything may lie."""
    lanes, real = _lanes(WIDTH)
    tokens = tl.arange(0, PAGE)[:, None]
    keys = pool_ptr + first_row * WIDTH + tokens * WIDTH + lanes
    mask = (tokens < written) & real
    return tl.load(keys, mask=mask, other=0.0), tl.load(keys + KV_HEADS * PAGE * WIDTH, mask=mask, other=0.0)


@triton.jit
def _scores(q, k, cap_scale, CAPPED: tl.constexpr):
    """q kᵀ, fp32 [HEIGHT, 64]; where there is a cap, as a share of it: tanh(x) = 1 - 2 / (e²ˣ + 1)."""
    scores = tl.dot(q, tl.trans(k))
    if CAPPED:
        scores = 1.0 - 2.0 / (tl.exp2(scores * cap_scale) + 1.0)
    return scores


@triton.jit
def _masked(scores, first, positions, window, WINDOWED: tl.constexpr):
    """Scores of those of the 64 positions from `first` on that a row sees, -inf for the others."""
    keys = (tl.arange(0, PAGE) + first)[None, :]
    visible = keys <= positions[:, None]
    if WINDOWED:
        visible = visible & (keys > positions[:, None] - window)
    return tl.where(visible, scores, NEVER)


@triton.jit
def _base(top, scale):
    """What is taken off every exponent: 0 for a row that has seen nothing, as -inf - -inf is NaN."""
    return tl.where(top == NEVER, 0.0, top * scale)


@triton.jit
def _walk(split, scores, v, scale):
    """Takes 64 positions into a split."""
    top, total, values = split
    new = tl.maximum(top, tl.max(scores, 1))
    base = _base(new, scale)
    # Not fused: where the largest score stays, this must be exactly 1.
    decay = tl.exp2(top * scale - base)[:, None]
    weights = tl.exp2(tl.fma(scores, scale, -base[:, None])).to(tl.bfloat16)
    # Through the matrix unit, whose order of adding does not depend on the tile's height; tl.sum's does.
    total = tl.dot(weights, tl.full((PAGE, 8), 1.0, tl.float32).to(tl.bfloat16), total * decay)
    return new, total, tl.dot(weights, v, values * decay)


@triton.jit
def _merge(seen, later, scale):
    """The splits so far, and the one after them."""
    top, total, values = seen
    later_top, later_total, later_values = later
    new = tl.maximum(top, later_top)
    base = _base(new, scale)
    decay = tl.exp2(top * scale - base)
    factor = tl.exp2(later_top * scale - base)
    return new, total * decay + later_total * factor, values * decay[:, None] + later_values * factor[:, None]


@triton.jit
def _ended(split):
    """A split whose sum is [HEIGHT]."""
    top, total, values = split
    return top, tl.max(total, 1), values


@triton.jit
def _finish(out_ptr, out_stride, rows, heads, exist, sinks_ptr, seen, scale, WIDTH: tl.constexpr, SINKS: tl.constexpr):
    """Divides by the sum, of which a head's sink is a part, and writes bf16 rows; zeros for rows that saw nothing."""
    lanes, real = _lanes(WIDTH)
    top, total, values = seen
    if SINKS:
        sinks = tl.load(sinks_ptr + heads, mask=exist, other=0.0) * LOG2_E
        base = tl.maximum(top * scale, sinks)
        decay = tl.exp2(top * scale - base)
        total = total * decay + tl.exp2(sinks - base)
        values = values * decay[:, None]
    # + 0.0: merging a split that a row saw nothing of turns -0 into 0, and not every tile has such splits.
    out = values * (1.0 / tl.where(total > 0.0, total, 1.0))[:, None] + 0.0
    at = rows.to(tl.int64)[:, None] * out_stride + heads[:, None] * WIDTH + lanes
    tl.store(out_ptr + at, out.to(tl.bfloat16), mask=exist[:, None] & real)


@triton.jit
def _leave(values_ptr, tops_ptr, totals_ptr, at, exist, seen, WIDTH: tl.constexpr):
    """Puts a split's rows into scratch."""
    lanes, real = _lanes(WIDTH)
    top, total, values = seen
    tl.store(values_ptr + at.to(tl.int64)[:, None] * WIDTH + lanes, values, mask=exist[:, None] & real)
    tl.store(tops_ptr + at, top, mask=exist)
    tl.store(totals_ptr + at, total, mask=exist)


@triton.jit
def _left(values_ptr, tops_ptr, totals_ptr, at, exist, WIDTH: tl.constexpr):
    """Takes them out again, fresh since this program acquired the last arrival; zeros where there are no rows."""
    lanes, real = _lanes(WIDTH)
    values = values_ptr + at.to(tl.int64)[:, None] * WIDTH + lanes
    top = tl.load(tops_ptr + at, mask=exist, other=0.0, cache_modifier=".cg")
    total = tl.load(totals_ptr + at, mask=exist, other=0.0, cache_modifier=".cg")
    return top, total, tl.load(values, mask=exist[:, None] & real, other=0.0, cache_modifier=".cg")


@triton.jit
def _fold(values_ptr, tops_ptr, totals_ptr, at, exist, step, splits, scale, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """A tile's splits, whose rows lie `step` rows of scratch apart, merged in order."""
    seen = _nothing(HEIGHT, WIDTH)
    for n in tl.range(0, splits, num_stages=FOLD_STAGES):
        seen = _merge(seen, _left(values_ptr, tops_ptr, totals_ptr, at + n * step, exist, WIDTH), scale)
    return seen


@triton.jit
def _turn(page, seen, split, scale, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, SPLIT: tl.constexpr):
    """At a split's first page: merges the one that has ended and begins with nothing."""
    if page * PAGE % SPLIT == 0:
        seen = _merge(seen, _ended(split), scale)
        split = _new_split(HEIGHT, WIDTH)
    return seen, split


@triton.jit
def _item(items_ptr, index):
    """One of `few`'s items, as `attention_work.Lists` says."""
    item = items_ptr + index * 8
    row, tokens, slot, start = tl.load(item), tl.load(item + 1), tl.load(item + 2), tl.load(item + 3)
    return row, tokens, slot, start, tl.load(item + 4), tl.load(item + 5), tl.load(item + 6), tl.load(item + 7)


@triton.jit(do_not_specialize=["layer", "layers", "window"])
def few(
    q_ptr, q_stride, pool_ptr, layer, layers, tables_ptr, table_stride, items_ptr, count_ptr,
    values_ptr, tops_ptr, totals_ptr, arrived_ptr, out_ptr, out_stride, sinks_ptr, scale, cap_scale, window,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr, SPLIT: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Whole tiles, or splits of tiles, of which the program that finishes a tile's last one merges them."""
    head = tl.program_id(0)
    # Before the count is known: programs are no more than items that the list can hold.
    row, tokens, slot, start, number, nth, items, partial = _item(items_ptr, tl.program_id(1))
    for index in range(tl.program_id(1), tl.load(count_ptr), tl.num_programs(1)):
        if index != tl.program_id(1):
            row, tokens, slot, start, number, nth, items, partial = _item(items_ptr, index)
        rows, heads, exist = _lines(row, tokens, head, GROUP, HEIGHT)
        end = start + tokens
        begin = number * (SPLIT // PAGE)
        stop = tl.cdiv(end, PAGE)
        stop = tl.minimum(begin + SPLIT // PAGE, stop) if items > 1 else stop
        if WINDOWED:
            begin = tl.maximum(begin, tl.maximum(start - window + 1, 0) // PAGE)
        table_ptr = tables_ptr + slot * table_stride
        place = tl.load(table_ptr + begin)
        wait(PDL)
        q = _queries(q_ptr, q_stride, rows, heads, exist, WIDTH)
        seen = _nothing(HEIGHT, WIDTH)
        split = _new_split(HEIGHT, WIDTH)
        for page in range(begin, stop):
            first_row = _first_row(place.to(tl.int64), layer, layers, head, KV_HEADS)
            # The next page's place is asked for here, so that its keys need not wait for it.
            place = tl.load(table_ptr + tl.minimum(page + 1, stop - 1))
            k, v = _written(pool_ptr, first_row, end - page * PAGE, KV_HEADS, WIDTH)
            seen, split = _turn(page, seen, split, scale, HEIGHT, WIDTH, SPLIT)
            scores = _scores(q, k, cap_scale, CAPPED)
            split = _walk(split, _masked(scores, page * PAGE, start + rows - row, window, WINDOWED), v, scale)
        if items == 1:
            seen = _merge(seen, _ended(split), scale)
            _finish(out_ptr, out_stride, rows, heads, exist, sinks_ptr, seen, scale, WIDTH, SINKS)
        else:
            step = tokens * (KV_HEADS * GROUP)
            at = (partial + rows - row) * (KV_HEADS * GROUP) + heads
            _leave(values_ptr, tops_ptr, totals_ptr, at + nth * step, exist, _ended(split), WIDTH)
            arrived = arrived_ptr + partial * KV_HEADS + head
            tl.debug_barrier()  # all of this program's stores come before its arrival
            if tl.atomic_add(arrived, 1, sem="acq_rel") == items - 1:
                tl.store(arrived, 0)
                seen = _fold(values_ptr, tops_ptr, totals_ptr, at, exist, step, items, scale, HEIGHT, WIDTH)
                _finish(out_ptr, out_stride, rows, heads, exist, sinks_ptr, seen, scale, WIDTH, SINKS)
    wait(PDL)  # programs without an item too: else the next kernel could overtake the one before


@triton.jit(do_not_specialize=["layer", "layers", "window"])
def many(
    q_ptr, q_stride, pool_ptr, layer, layers, tables_ptr, table_stride, items_ptr, count_ptr,
    pool, out_ptr, out_stride, sinks_ptr, scale, cap_scale, window,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, HEIGHT: tl.constexpr, SPLIT: tl.constexpr,
    WINDOWED: tl.constexpr, CAPPED: tl.constexpr, SINKS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """All splits of a tile, in order. `pool` is the pool's rows [.., WIDTH] for bulk loads of 64."""
    head = tl.program_id(0)
    item = items_ptr + tl.program_id(1) * 5
    wait(PDL)
    if tl.program_id(1) < tl.load(count_ptr):
        row, tokens, slot, start = tl.load(item), tl.load(item + 1), tl.load(item + 2), tl.load(item + 3)
        written = tl.load(item + 4)
        rows, heads, exist = _lines(row, tokens, head, GROUP, HEIGHT)
        end = start + tokens
        stop = tl.cdiv(end, PAGE)
        begin = tl.maximum(start - window + 1, 0) // PAGE if WINDOWED else 0
        # Pages that all rows see whole have nothing to mask, and masking nothing changes no bit.
        whole = begin if WINDOWED else (start + 1) // PAGE
        # A chat's last page may end in what nobody wrote, which must not come near the matrix unit.
        full = tl.minimum(written // PAGE, stop)
        table_ptr = tables_ptr + slot * table_stride
        place = tl.load(table_ptr + begin)
        q = _queries(q_ptr, q_stride, rows, heads, exist, WIDTH)
        seen = _nothing(HEIGHT, WIDTH)
        split = _new_split(HEIGHT, WIDTH)
        for page in range(begin, full):
            first_row = _first_row(place, layer, layers, head, KV_HEADS)
            place = tl.load(table_ptr + tl.minimum(page + 1, stop - 1))
            k = pool.load([first_row, 0])
            v = pool.load([first_row + KV_HEADS * PAGE, 0])
            seen, split = _turn(page, seen, split, scale, HEIGHT, WIDTH, SPLIT)
            scores = _scores(q, k, cap_scale, CAPPED)
            if page >= whole:
                scores = _masked(scores, page * PAGE, start + rows - row, window, WINDOWED)
            split = _walk(split, scores, v, scale)
        for page in range(full, stop):
            first_row = _first_row(place.to(tl.int64), layer, layers, head, KV_HEADS)
            k, v = _written(pool_ptr, first_row, written % PAGE, KV_HEADS, WIDTH)
            seen, split = _turn(page, seen, split, scale, HEIGHT, WIDTH, SPLIT)
            scores = _scores(q, k, cap_scale, CAPPED)
            split = _walk(split, _masked(scores, page * PAGE, start + rows - row, window, WINDOWED), v, scale)
        seen = _merge(seen, _ended(split), scale)
        _finish(out_ptr, out_stride, rows, heads, exist, sinks_ptr, seen, scale, WIDTH, SINKS)
