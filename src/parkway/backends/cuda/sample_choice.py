"""The sampler's third kernel: the token of a row that draws, its log-probability, its most probable tokens.

A row that filters, or reports the most probable tokens, first puts the candidates that can matter on a list: the bands
in which its limits and its draw can fall. All programs of the row gather; the last to arrive chooses.
"""

import triton
import triton.language as tl

from parkway.backends.cuda.sample_draw import (
    drawn_among_all,
    drawn_among_some,
    load_totals,
    needed_bands,
    search_count,
)
from parkway.backends.cuda.sample_list import collect, gather
from parkway.backends.cuda.sample_row import (
    NO_NUMBERS,
    NOTHING,
    ONE,
    REPORTED,
    RESULT,
    TOPS,
    draws,
    filters,
    id_of,
    is_finite,
    load_logits,
    logit_of,
    order_word,
    sharpness,
    store_result,
    uniform53,
)
from parkway.backends.cuda.sample_sums import known_token, needs_sums


@triton.jit
def logprob_of(logits, peak, normaliser):
    """Natural log-probabilities at temperature 1, rounded to fp32 once."""
    return ((logits.to(tl.float64) - peak) - tl.log(normaliser.to(tl.float64) / ONE)).to(tl.float32)


@triton.jit
def report_tops(results, source, counts, masses, scratch, tops, normaliser):
    """Writes the `tops` most probable tokens, falling, equal ones by rising id; zeros behind them."""
    _, _, _, _, peak, _, id_bits = source
    least, _high, _mass = search_count(source, counts, masses, tops)
    found = collect(source, least, scratch)
    tl.debug_barrier()
    lanes = tl.arange(0, 32)
    entries = tl.load(scratch + lanes, mask=lanes < found, other=NOTHING)
    others, own = entries[None, :], entries[:, None]
    before = (others > own) | ((others == own) & (lanes[None, :] < lanes[:, None]))  # equal ones are empty
    ranks = tl.sum(before.to(tl.int32), axis=1)
    logprobs = logprob_of(logit_of(entries, id_bits), peak, normaliser).to(tl.int32, bitcast=True)
    shown = ranks < REPORTED
    tl.store(results + 2 + ranks, tl.where(lanes < found, id_of(entries, id_bits), 0), mask=shown)
    tl.store(results + 2 + REPORTED + ranks, tl.where(lanes < found, logprobs, 0), mask=shown)


@triton.jit
def unfiltered_token(
    logits, orders, best, sums, chunks, vocabulary, row, peak, sharp, draw,
    ID_BITS: tl.constexpr, CHUNK: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """The token of a row without filters: drawn, looked up, or the most probable."""
    if draws(orders, row):
        token = drawn_among_all(logits, sums + row * chunks, chunks, vocabulary, peak, sharp, draw, ALL, CHUNK)
    else:
        token = known_token(best, orders, row, ID_BITS)
    return token


@triton.jit
def finish(logits, orders, best, normalisers, results, last_tokens, row, token, peak):
    """Writes the row's token and log-probability, and leaves `best` as the next step needs it."""
    tops = order_word(orders, row, TOPS)
    token = tl.where(is_finite(peak), token, NO_NUMBERS)
    logprob = tl.zeros((), tl.float32)
    if tops >= 0:
        logprob = logprob_of(load_logits(logits, token, token >= 0), peak, tl.load(normalisers + row))
    store_result(results, last_tokens, orders, row, token, logprob, tops)
    tl.debug_barrier()  # every warp has read what comes to an end here
    tl.store(best + row, NOTHING)


@triton.jit
def choice_kernel(
    logits, stride, orders, best, normalisers, tables, sums, chunks, lists, capacity, lengths, scratch,
    results, last_tokens, vocabulary,
    ID_BITS: tl.constexpr, CHUNK: tl.constexpr, ALL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The rows that the second kernel has left over. Grid (programs per row, rows).

    lists int32 [rows, capacity]; lengths int32 [rows, 2]: of the list, and how many programs have arrived, both 0
    before and after; scratch int64 [rows, 32].
    """
    row, program = tl.program_id(1), tl.program_id(0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    tops = order_word(orders, row, TOPS)
    filtered = filters(orders, row)
    listed = filtered | (tops > 0)
    if (not needs_sums(orders, row)) | ((program > 0) & (not listed)):
        return
    logits += row.to(tl.int64) * stride
    peak = logit_of(tl.load(best + row), ID_BITS)
    sharp = sharpness(orders, row)
    draw = uniform53(orders, row)
    if listed:
        counts, masses = load_totals(tables, row)
        bands = needed_bands(orders, row, counts, masses, peak, sharp, draw)
        lists += row.to(tl.int64) * capacity
        lengths += row * 2
        gather(logits, lists, lengths, capacity, vocabulary, peak, sharp, bands, CHUNK)
        tl.debug_barrier()  # all of this program's ids are on the list before it says so
        if tl.atomic_add(lengths + 1, 1, sem="acq_rel") == tl.num_programs(0) - 1:
            length = tl.load(lengths)
            tl.debug_barrier()  # every warp has read it
            tl.store(lengths + tl.arange(0, 2), tl.zeros((2,), tl.int32))
            whole = length > capacity  # a row of which too much can matter is its own list
            length = tl.where(whole, vocabulary, length)
            source = (logits, lists, length, whole, peak, sharp, ID_BITS)
            if filtered:
                token = drawn_among_some(orders, row, source, counts, masses, draw)
            else:
                token = unfiltered_token(
                    logits, orders, best, sums, chunks, vocabulary, row, peak, sharp, draw, ID_BITS, CHUNK, ALL
                )  # fmt: skip
            if tops > 0:
                wanted, normaliser = tl.minimum(tops, vocabulary), tl.load(normalisers + row)
                report_tops(results + row * RESULT, source, counts, masses, scratch + row * 32, wanted, normaliser)
            finish(logits, orders, best, normalisers, results, last_tokens, row, token, peak)
    else:
        token = unfiltered_token(
            logits, orders, best, sums, chunks, vocabulary, row, peak, sharp, draw, ID_BITS, CHUNK, ALL
        )  # fmt: skip
        finish(logits, orders, best, normalisers, results, last_tokens, row, token, peak)
