"""What a chain of samplers has left of one row's candidates: a run of its entries, looked at by one program.

Sums are of doubles, added in an order that the code fixes: one program takes all of a row, block by block. A search
cuts the entries into four ranges, sums what lies above each cut, and goes on in the range where the sum crosses what is
looked for.

The row is handed on as `source`: its logits, a list of ids, how many those are, or columns of the row if it is `whole`
its own list, bits of an id. What is left of it as `left`: entries from `low` to below `high`, the largest of their
logits, what logits are multiplied with, double. A candidate's x is 0 at the largest logit; it weighs exp(x).
"""

import triton
import triton.language as tl

from parkway.backends.cuda.sample_row import NOTHING, entry, id_of, load_logits, logit_of

BLOCK = tl.constexpr(1024)
"""Candidates that are looked at together."""
MOST = tl.constexpr(2**63 - 1)


@triton.jit
def load_entries(source, low, high, start):
    """Entries of a block from `low` to below `high`, NOTHING in place of others; their logits, 0 in place of others."""
    logits, listed, length, whole, id_bits = source
    places = start + tl.arange(0, BLOCK)
    inside = places < length
    ids = tl.where(whole != 0, places, tl.load(listed + places, mask=inside & (whole == 0), other=0))
    values = load_logits(logits, ids, inside)
    entries = entry(values, ids, id_bits)
    taken = inside & (values > float("-inf")) & (entries >= low) & (entries < high)
    return tl.where(taken, entries, NOTHING), tl.where(taken, values, 0.0)


@triton.jit
def load_candidates(source, left, start):
    """Entries of a block, NOTHING in place of what is not left; their x and weights, double."""
    low, high, top, scale = left
    entries, values = load_entries(source, low, high, start)
    x = tl.where(entries != NOTHING, x_of(values, top, scale), 0.0)
    return entries, x, tl.where(entries != NOTHING, tl.exp(x), 0.0)


@triton.jit
def x_of(values, top, scale):
    return tl.where(values == top, 0.0, (values.to(tl.float64) - top.to(tl.float64)) * scale)


@triton.jit
def measured(source, left):
    """How many are left, what they weigh, and the sum of x times weight."""
    counts = tl.zeros((BLOCK,), tl.int32)
    weights = tl.zeros((BLOCK,), tl.float64)
    weighted = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, source[2], BLOCK):
        entries, x, weight = load_candidates(source, left, start)
        counts += (entries != NOTHING).to(tl.int32)
        weights += weight
        weighted += tl.where(weight > 0, weight * x, 0.0)
    return tl.sum(counts), tl.sum(weights), tl.sum(weighted)


@triton.jit
def spread(source, left, count):
    """The standard deviation of x."""
    sums = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, source[2], BLOCK):
        _entries, x, _weight = load_candidates(source, left, start)
        sums += x
    mean = tl.sum(sums) / count
    squares = tl.zeros((BLOCK,), tl.float64)
    for start in range(0, source[2], BLOCK):
        entries, x, _weight = load_candidates(source, left, start)
        squares += tl.where(entries != NOTHING, (x - mean) * (x - mean), 0.0)
    return tl.sqrt(tl.sum(squares) / count)


@triton.jit
def largest(source, low, high):
    """The largest entry between them, NOTHING if there is none."""
    found = tl.full((), NOTHING, tl.int64)
    for start in range(0, source[2], BLOCK):
        entries, _values = load_entries(source, low, high, start)
        found = tl.maximum(found, tl.max(entries))
    return found


@triton.jit
def least_and_largest(source):
    """Entries of all candidates; NOTHING as the largest if there are none."""
    low, high = tl.full((), MOST, tl.int64), tl.full((), NOTHING, tl.int64)
    for start in range(0, source[2], BLOCK):
        entries, _values = load_entries(source, NOTHING + 1, MOST, start)
        low = tl.minimum(low, tl.min(tl.where(entries == NOTHING, MOST, entries)))
        high = tl.maximum(high, tl.max(entries))
    return low, high


@triton.jit
def ends(source, left, least):
    """The least entry with an x of `least` or more, and how many have that."""
    low = tl.full((), MOST, tl.int64)
    counts = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, source[2], BLOCK):
        entries, x, _weight = load_candidates(source, left, start)
        passes = (entries != NOTHING) & (x >= least)
        low = tl.minimum(low, tl.min(tl.where(passes, entries, MOST)))
        counts += passes.to(tl.int32)
    return low, tl.sum(counts)


@triton.jit
def nearness(x, centre):
    """int64 that is larger for an x nearer to a centre, 0 at most."""
    return -tl.abs(x - centre).to(tl.int64, bitcast=True)


@triton.jit
def near_ends(source, left, centre, least):
    """The least and the largest entry with a nearness of `least` or more."""
    low, high = tl.full((), MOST, tl.int64), tl.full((), NOTHING, tl.int64)
    for start in range(0, source[2], BLOCK):
        entries, x, _weight = load_candidates(source, left, start)
        passes = (entries != NOTHING) & (nearness(x, centre) >= least)
        low = tl.minimum(low, tl.min(tl.where(passes, entries, MOST)))
        high = tl.maximum(high, tl.max(tl.where(passes, entries, NOTHING)))
    return low, high


@triton.jit
def search(source, left, cut, end, wanted, centre, COUNT: tl.constexpr, MORE: tl.constexpr, NEAR: tl.constexpr):
    """The largest number from `cut` to below `end` down to which they are as many (COUNT) or heavy as wanted, or MORE.

    They stand by their entries, or by nearness to a centre (NEAR). Where they never do, it is the first number.
    """
    while end - cut > 1:
        quarter = (end - cut + 3) // 4
        a = cut + quarter
        b, c = tl.minimum(a + quarter, end - 1), tl.minimum(a + 2 * quarter, end - 1)
        above_a = tl.zeros((BLOCK,), tl.float64)
        above_b = tl.zeros((BLOCK,), tl.float64)
        above_c = tl.zeros((BLOCK,), tl.float64)
        for start in range(0, source[2], BLOCK):
            entries, x, weight = load_candidates(source, left, start)
            places = tl.where(entries != NOTHING, nearness(x, centre), NOTHING) if NEAR else entries
            units = (entries != NOTHING).to(tl.float64) if COUNT else weight
            above_a += tl.where(places >= a, units, 0.0)
            above_b += tl.where(places >= b, units, 0.0)
            above_c += tl.where(places >= c, units, 0.0)
        at_a, at_b, at_c = tl.sum(above_a), tl.sum(above_b), tl.sum(above_c)
        a_reaches = at_a > wanted if MORE else at_a >= wanted
        b_reaches = at_b > wanted if MORE else at_b >= wanted
        c_reaches = at_c > wanted if MORE else at_c >= wanted
        end = tl.where(c_reaches, end, tl.where(b_reaches, c, tl.where(a_reaches, b, a)))
        cut = tl.where(c_reaches, c, tl.where(b_reaches, b, tl.where(a_reaches, a, cut)))
    return cut


@triton.jit
def collect(source, low, high, out):
    """Writes the entries between two, one behind the other."""
    found = tl.zeros((), tl.int32)
    for start in range(0, source[2], BLOCK):
        entries, _values = load_entries(source, low, high, start)
        taken = (entries != NOTHING).to(tl.int32)
        tl.store(out + found + tl.cumsum(taken, 0) - 1, entries, mask=taken > 0)
        found += tl.sum(taken)


@triton.jit
def counted(source, low, high):
    counts = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, source[2], BLOCK):
        entries, _values = load_entries(source, low, high, start)
        counts += (entries != NOTHING).to(tl.int32)
    return tl.sum(counts)


@triton.jit
def shortened(source, low, high, capacity):
    """The list's length and whether the row is its own, when ids of what is left have gone on it if there is room."""
    _logits, listed, length, whole, id_bits = source
    if whole != 0:  # noqa: SIM102 - a condition is computed as a whole
        if counted(source, low, high) <= capacity:
            found = tl.zeros((), tl.int32)
            for start in range(0, length, BLOCK):
                entries, _values = load_entries(source, low, high, start)
                taken = (entries != NOTHING).to(tl.int32)
                tl.store(listed + found + tl.cumsum(taken, 0) - 1, id_of(entries, id_bits), mask=taken > 0)
                found += tl.sum(taken)
            tl.debug_barrier()  # all of it is there before it is read
            length = found
            whole = whole * 0
    return length, whole


@triton.jit
def top_of(source, low, high):
    """The largest logit between two entries."""
    return logit_of(largest(source, low, high), source[4])
