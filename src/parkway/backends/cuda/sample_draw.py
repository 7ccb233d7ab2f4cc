"""Where a row's draw falls: among all candidates by rising id, or among those that the filters leave, heaviest first.

Also where it can fall, by bands, before any candidate has been looked at.
"""

import triton
import triton.language as tl

from parkway.backends.cuda.sample_list import largest_below, mass_from, search
from parkway.backends.cuda.sample_row import (
    BANDS,
    MIN_P,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    TOPS,
    band,
    depth,
    filters,
    id_of,
    image,
    load_logits,
    order_real,
    order_word,
    pictured,
    weight,
)


@triton.jit
def share_of(mass, bits53):
    """floor(mass * bits53 / 2**53) of a uint64 number of 53 bits, int64."""
    return tl.umulhi(mass.to(tl.uint64), bits53 << 11).to(tl.int64)


@triton.jit
def nucleus_of(mass, bits53):
    """What top_p (53 bits, uint64) wants of a mass: rounded up, and at least something."""
    rest = mass.to(tl.uint64) * (bits53 << 11)
    return tl.maximum(share_of(mass, bits53) + (rest != 0).to(tl.int64), 1)


@triton.jit
def limits_of(orders, row, peak):
    """top_k (2**31 for all); top_p in 53 bits, uint64; the least logit that min_p keeps, as its image."""
    top_k = order_word(orders, row, TOP_K).to(tl.int64)
    top_p = (order_real(orders, row, TOP_P).to(tl.float64) * 9007199254740992.0).to(tl.uint64)
    min_p = tl.maximum(order_real(orders, row, MIN_P).to(tl.float64), 1e-300)
    exact = peak.to(tl.float64) + tl.log(min_p) * order_real(orders, row, TEMPERATURE).to(tl.float64)
    rounded = exact.to(tl.float32)
    least = image(rounded) + (rounded.to(tl.float64) < exact).to(tl.int32)
    return tl.where(top_k > 0, top_k, 2**31), top_p, least


@triton.jit
def load_totals(tables, row):
    """Running totals by band, int64 [BANDS]: how many candidates, and their mass."""
    cells = tables + row * 2 * BANDS + tl.arange(0, BANDS)
    return tl.cumsum(tl.load(cells), 0), tl.cumsum(tl.load(cells + BANDS), 0)


@triton.jit
def at(totals, number):
    """The running total at a band; 0 in front of the first."""
    return tl.sum(tl.where(tl.arange(0, BANDS) == number, totals, 0))


@triton.jit
def reaching(totals, wanted):
    """The band in which running totals reach what is wanted, the last one at most."""
    return tl.minimum(tl.sum((totals < wanted).to(tl.int32)), BANDS - 1)


@triton.jit
def bits(first, last):
    """The bits of the bands from `first` to `last`, int64."""
    one = tl.full((), 1, tl.int64)
    return ((one + one) << last.to(tl.int64)) - (one << first.to(tl.int64))


@triton.jit
def needed_bands(orders, row, counts, masses, peak, sharp, draw):
    """The bands in which a limit or the draw can fall, a bit each, from the row's running totals.

    A number falls into one band. A share falls into one if its whole is known, else, with the whole between two totals,
    into one from this to that: all shares rise with the whole.
    """
    needed = tl.zeros((), tl.int64)
    if filters(orders, row):
        top_k, top_p, least = limits_of(orders, row, peak)
        low = at(masses, BANDS - 1)
        high = low
        if top_k < at(counts, BANDS - 1):
            cut = reaching(counts, top_k)
            needed |= bits(cut, cut)
            low, high = at(masses, cut - 1), at(masses, cut)
        if order_real(orders, row, TOP_P) < 1:
            first, last = reaching(masses, nucleus_of(low, top_p)), reaching(masses, nucleus_of(high, top_p))
            needed |= bits(first, last)
            low, high = at(masses, first - 1), tl.minimum(high, at(masses, last))
        if order_real(orders, row, MIN_P) > 0:
            cut = band(depth(pictured(least), peak, sharp))
            needed |= bits(cut, cut)
            low, high = tl.minimum(low, at(masses, cut - 1)), tl.minimum(high, at(masses, cut))
        needed |= bits(reaching(masses, share_of(low, draw) + 1), reaching(masses, share_of(high, draw) + 1))
    tops = order_word(orders, row, TOPS)
    if tops > 0:
        last = reaching(counts, tl.minimum(tops, at(counts, BANDS - 1)))
        needed |= bits(last * 0, last)
    return needed


@triton.jit
def search_count(source, counts, masses, count):
    """The `count`-th candidate: [low, high) in which it is the only one, and the mass down to it."""
    number = reaching(counts, count)
    return search(source, number, (at(counts, number - 1), at(masses, number - 1)), count, 0)


@triton.jit
def search_mass(source, counts, masses, mass):
    """The candidate down to which candidates have a mass, likewise."""
    number = reaching(masses, mass)
    return search(source, number, (at(counts, number - 1), at(masses, number - 1)), 0, mass)


@triton.jit
def drawn_among_some(orders, row, source, counts, masses, draw):
    """The token where the draw falls among the candidates that the filters leave, the heaviest first."""
    _, _, _, _, peak, sharp, id_bits = source
    top_k, top_p, least = limits_of(orders, row, peak)
    kept = at(masses, BANDS - 1)
    if top_k < at(counts, BANDS - 1):
        _low, _high, kept = search_count(source, counts, masses, top_k)
    if order_real(orders, row, TOP_P) < 1:
        _low, _high, kept = search_mass(source, counts, masses, nucleus_of(kept, top_p))
    if order_real(orders, row, MIN_P) > 0:
        cut = band(depth(pictured(least), peak, sharp))
        kept = tl.minimum(kept, at(masses, cut - 1) + mass_from(source, cut, least.to(tl.int64) << id_bits))
    _low, high, _mass = search_mass(source, counts, masses, share_of(kept, draw) + 1)
    return id_of(largest_below(source, high), id_bits)


@triton.jit
def drawn_among_all(logits, sums, chunks, vocabulary, peak, sharp, draw, ALL: tl.constexpr, CHUNK: tl.constexpr):
    """The token where the draw falls among all candidates, by rising id."""
    numbers = tl.arange(0, ALL)
    totals = tl.cumsum(tl.load(sums + numbers, mask=numbers < chunks, other=0), 0)
    target = share_of(tl.max(totals), draw)
    chunk = tl.sum((totals <= target).to(tl.int32))
    target -= tl.max(tl.where(numbers < chunk, totals, 0))
    ids = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = ids < vocabulary
    weights = tl.where(inside, weight(depth(load_logits(logits, ids, inside), peak, sharp)), 0)
    return chunk * CHUNK + tl.sum((tl.cumsum(weights, 0) <= target).to(tl.int32))
