"""The sampler's first two kernels, parallel over chunks of columns: each row's largest logit, then sums of its weights.

Rows that ask for nothing else have their result after the second; the third (sample_choice) returns at once for them.
"""

import triton
import triton.language as tl

from parkway.backends.cuda.sample_row import (
    BANDS,
    CHOOSE,
    LOG2_E,
    NO_NUMBERS,
    NOTHING,
    TARGET,
    TOPS,
    band,
    depth,
    draws,
    entry,
    filters,
    id_of,
    is_finite,
    load_logits,
    logit_of,
    order_word,
    sharpness,
    store_result,
    weight,
)


@triton.jit
def needs_sums(orders, row):
    """Whether more than the largest logit must be known."""
    return draws(orders, row) | (order_word(orders, row, TOPS) >= 0)


@triton.jit
def known_token(best, orders, row, id_bits):
    """The token of a row that draws nothing: the one to look up, else the most probable."""
    target, largest = order_word(orders, row, TARGET), tl.load(best + row)
    most_probable = tl.where(is_finite(logit_of(largest, id_bits)), id_of(largest, id_bits), NO_NUMBERS)
    return tl.where(target != CHOOSE, target, most_probable)


@triton.jit
def largest_kernel(
    logits, stride, orders, best, normalisers, tables, vocabulary,
    ID_BITS: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """best[row] = the row's largest entry; clears what the second kernel adds to. Grid (programs per row, rows)."""
    row = tl.program_id(1)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if tl.program_id(0) == 0:
        tl.store(normalisers + row, tl.zeros((), tl.int64))
        cells = tl.arange(0, 2 * BANDS)
        tl.store(tables + row * 2 * BANDS + cells, tl.zeros((2 * BANDS,), tl.int64))
    if (order_word(orders, row, TARGET) != CHOOSE) & (order_word(orders, row, TOPS) < 0):
        return
    logits += row.to(tl.int64) * stride
    lanes = tl.arange(0, CHUNK)
    values = tl.full((CHUNK,), float("-inf"), tl.float32)
    ids = lanes * 0
    for start in range(tl.program_id(0) * CHUNK, vocabulary, tl.num_programs(0) * CHUNK):
        seen = tl.load(logits + start + lanes, mask=start + lanes < vocabulary, other=float("-inf"))
        larger = seen > values  # ids rise: of equal logits the lowest stays; NaN is never larger
        values, ids = tl.where(larger, seen, values), tl.where(larger, start + lanes, ids)
    tl.atomic_max(best + row, tl.max(entry(values, ids, ID_BITS)), sem="relaxed")


@triton.jit
def sums_kernel(
    logits, stride, orders, best, normalisers, tables, sums, chunks, results, last_tokens, vocabulary,
    ID_BITS: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Adds up each row's weights as far as it needs them, all int64. Grid (programs per row, rows).

    normalisers[row]: at temperature 1. sums[row, chunk]: at the row's temperature, for rows that draw. tables[row]:
    counts of candidates by band, then sums of their weights, for rows that filter or report the most probable.
    """
    row, program = tl.program_id(1), tl.program_id(0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if not needs_sums(orders, row):
        if program == 0:
            token = known_token(best, orders, row, ID_BITS)
            store_result(results, last_tokens, orders, row, token, tl.zeros((), tl.float32), -1)
            tl.debug_barrier()  # every warp has read it
            tl.store(best + row, NOTHING)
        return
    logits += row.to(tl.int64) * stride
    tops = order_word(orders, row, TOPS)
    drawn, listed = draws(orders, row), filters(orders, row) | (tops > 0)
    sharp = sharpness(orders, row)
    peak = logit_of(tl.load(best + row), ID_BITS)
    lanes, cells = tl.arange(0, CHUNK), tl.arange(0, BANDS)
    normaliser = tl.zeros((), tl.int64)
    counts = tl.zeros((BANDS,), tl.int64)
    masses = tl.zeros((BANDS,), tl.int64)
    for chunk in range(program, chunks, tl.num_programs(0)):
        ids = chunk * CHUNK + lanes
        inside = ids < vocabulary
        values = load_logits(logits, ids, inside)
        if tops >= 0:
            normaliser += tl.sum(tl.where(inside, weight(depth(values, peak, LOG2_E)), 0))
        depths = depth(values, peak, sharp)
        weights = tl.where(inside, weight(depths), 0)
        if drawn:
            tl.store(sums + row * chunks + chunk, tl.sum(weights))
        if listed:
            bands = tl.where(inside, band(depths), BANDS)
            # Mostly few: logits that far from the peak lie close together.
            for number in range(tl.min(bands), tl.max(tl.where(inside, bands, 0)) + 1):
                here = bands == number
                counts += tl.where(cells == number, tl.sum(here.to(tl.int32)), 0)
                masses += tl.where(cells == number, tl.sum(tl.where(here, weights, 0)), 0)
    if tops >= 0:
        tl.atomic_add(normalisers + row, normaliser, sem="relaxed")
    if listed:
        tl.atomic_add(tables + row * 2 * BANDS + cells, counts, sem="relaxed")
        tl.atomic_add(tables + row * 2 * BANDS + BANDS + cells, masses, sem="relaxed")
