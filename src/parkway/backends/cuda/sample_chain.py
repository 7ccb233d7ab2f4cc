"""The sampler's kernel for rows with a chain: samplers in any order, as backends/reference_sampler.py specifies each.

One program takes a row, since each step needs what the one before left. That is slow beside the other kernels, and only
for those who ask: rows without a chain return at once. What is chosen is handed on as the token of edited rows is.
"""

import triton
import triton.language as tl

from parkway.backends.cuda.sample_edits import CHAIN, COUNT, STEPS, edit_word, numbers_at
from parkway.backends.cuda.sample_left import (
    collect,
    ends,
    largest,
    least_and_largest,
    measured,
    near_ends,
    search,
    shortened,
    spread,
    top_of,
    x_of,
)
from parkway.backends.cuda.sample_row import NOTHING, RESULT, SURPRISE, id_of, logit_of, uniform53

STEP_WORDS = tl.constexpr(8)
"""int32 words of a step: what it is, 64 bits, then three doubles."""
TEMPERATURE, TOP_K, TOP_P, MIN_P, TOP_N_SIGMA, TYPICAL, XTC, MIROSTAT, MIROSTAT_2 = (
    tl.constexpr(kind) for kind in range(9)
)
"""In the order of runner/chain.py."""
LN2 = tl.constexpr(0.6931471805599453)
FIRST_TOKENS = tl.constexpr(100)
ROOM = tl.constexpr(128)
"""… and of the memory for their entries."""


@triton.jit
def real_at(words):
    """A double of two words, wherever it lies."""
    low = tl.load(words).to(tl.uint32, bitcast=True).to(tl.uint64)
    high = tl.load(words + 1).to(tl.uint32, bitcast=True).to(tl.uint64)
    return ((high << 32) | low).to(tl.float64, bitcast=True)


@triton.jit
def uniform(orders, row, draw):
    return uniform53(orders, row, draw).to(tl.float64) * tl.full((), 2.0**-53, tl.float64)


@triton.jit
def ln2():
    return tl.full((), LN2, tl.float64)


@triton.jit
def power(base, exponent):
    """Of a base that is not negative."""
    return tl.where(exponent == 0, 1.0, tl.exp(tl.log(base) * exponent))


@triton.jit
def dynamic(about, span, exponent, count, entropy):
    """The temperature between its ends by the entropy."""
    flatness = tl.where(count > 1, entropy / tl.log(tl.maximum(count, 2).to(tl.float64)), 0.0)
    low, high = tl.maximum(about - span, 0.0), about + span
    found = low + (high - low) * power(tl.maximum(flatness, 0.0), exponent)
    return tl.where((span > 0) & (count > 1), found, about)


@triton.jit
def zipf_count(source, left, firsts, count, mu, vocabulary):
    """How many mirostat keeps, by the slope of the first hundred."""
    low, high, top, scale = left
    n = tl.minimum(count, FIRST_TOKENS)
    if count > FIRST_TOKENS:
        low = search(source, left, low, high, n.to(tl.float64), scale, True, False, False)
    collect(source, low, high, firsts)
    tl.debug_barrier()
    lanes = tl.arange(0, ROOM)
    entries = tl.load(firsts + lanes, mask=lanes < n, other=NOTHING)
    rank = tl.sum((entries[None, :] > entries[:, None]).to(tl.int32), axis=1)
    tl.debug_barrier()  # every warp has read them before another step writes here
    values = logit_of(entries, source[4])
    x = tl.where(lanes < n, x_of(values, top, scale), 0.0)
    here = tl.where(rank < n - 1, tl.log((rank + 2).to(tl.float64) / (rank + 1).to(tl.float64)), 0.0)
    before = tl.where(rank > 0, tl.log((rank + 1).to(tl.float64) / tl.maximum(rank, 1).to(tl.float64)), 0.0)
    inside = lanes < n
    products = tl.sum(tl.where(inside, x * (here - before), 0.0))
    squares = tl.sum(tl.where(inside, here * here, 0.0))
    s = products / squares
    many = tl.log(tl.zeros((), tl.float64) + vocabulary)
    base = (s - 1) * tl.exp(mu * ln2()) / (1 - tl.exp(many * (1 - s)))
    k = tl.exp(tl.log(base) / s)
    return tl.where(k >= 1, tl.minimum(k, count.to(tl.float64)), 1.0)  # no number: 1


@triton.jit
def kept(source, left, kind, a, b, c, draw, firsts, vocabulary):
    """What a step leaves: low, high, scale."""
    low, high, _top, scale = left
    count, weights, weighted = measured(source, left)
    log_weights = tl.log(weights)
    entropy = log_weights - weighted / weights
    if kind == TEMPERATURE:
        about = dynamic(a, b, c, count, entropy)
        cold = about < tl.full((), 1e-5, tl.float64)
        low = tl.where(cold, largest(source, low, high), low)
        scale = tl.where(cold, scale, scale / about)
    elif (kind == TOP_K) | (kind == MIROSTAT):
        wanted = a
        if kind == MIROSTAT:
            wanted = zipf_count(source, left, firsts, count, a, vocabulary)
        whole_number = tl.floor(tl.maximum(wanted, 1.0))
        if whole_number < count:
            low = search(source, left, low, high, whole_number, a, True, False, False)
    elif kind == TOP_P:
        low = search(source, left, low, high, a * weights, a, False, False, False)
    elif (kind == MIN_P) | (kind == TOP_N_SIGMA) | (kind == MIROSTAT_2):
        least = tl.log(tl.maximum(a, tl.full((), 1e-300, tl.float64)))
        if kind == TOP_N_SIGMA:
            least = -a * spread(source, left, count)
        if kind == MIROSTAT_2:
            least = log_weights - a * ln2()
        low, _count = ends(source, left, tl.minimum(least, 0.0))
    elif kind == TYPICAL:
        centre = log_weights - entropy
        furthest = nearness_of_nothing()
        near = search(source, left, furthest, tl.full((), 1, tl.int64), a * weights, centre, False, True, True)
        low, furthest = near_ends(source, left, centre, near)
        high = furthest + 1
    else:
        last_above, above = ends(source, left, tl.log(b) + log_weights)
        high = tl.where((above > 1) & (draw < a), last_above + 1, high)
    return low, high, scale


@triton.jit
def nearness_of_nothing():
    """Below what any candidate has."""
    return tl.full((), -0x7FF0000000000000, tl.int64)


@triton.jit
def chain_kernel(
    edited, stride, orders, edits, place, chosen, lists, capacity, firsts, vocabulary,
    ID_BITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Chooses the tokens of rows that have a chain, into chosen, int32 [rows, RESULT], with their surprise.

    Grid (rows,). lists int32 [rows, capacity] and firsts int64 [rows, ROOM] are scratch.
    """
    row = tl.program_id(0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    at = edit_word(edits, row, CHAIN)
    if (edit_word(edits, row, COUNT) < 0) | (at < 0):
        return
    edited += row.to(tl.int64) * stride
    lists += row.to(tl.int64) * capacity
    firsts += row.to(tl.int64) * ROOM
    words = numbers_at(place) + at
    length, whole = tl.zeros((), tl.int32) + vocabulary, tl.full((), 1, tl.int32)
    scale = tl.full((), 1.0, tl.float64)
    low, high = least_and_largest((edited, lists, length, whole, ID_BITS))
    if high == NOTHING:
        tl.store(chosen + row * RESULT, -1)
        return
    high += 1
    for step in range(edit_word(edits, row, STEPS)):
        source = (edited, lists, length, whole, ID_BITS)
        left = (low, high, top_of(source, low, high), scale)
        kind = tl.load(words + step * STEP_WORDS)
        numbers = words + step * STEP_WORDS + 2
        a, b, c = real_at(numbers), real_at(numbers + 2), real_at(numbers + 4)
        low, high, scale = kept(source, left, kind, a, b, c, uniform(orders, row, 1), firsts, vocabulary)
        length, whole = shortened(source, low, high, capacity)
    source = (edited, lists, length, whole, ID_BITS)
    left = (low, high, top_of(source, low, high), scale)
    _count, weights, _weighted = measured(source, left)
    found = search(source, left, low, high, uniform(orders, row, 0) * weights, scale, False, True, False)
    found = largest(source, low, found + 1)
    logit = logit_of(found, ID_BITS)
    x = x_of(logit, left[2], scale)
    tl.store(chosen + row * RESULT, id_of(found, ID_BITS))
    surprise = ((tl.log(weights) - x) / ln2()).to(tl.float32)
    tl.store(chosen + row * RESULT + SURPRISE, surprise.to(tl.int32, bitcast=True))
