"""Candidates of one row that can matter for a choice, and how to find one by its place among them without sorting.

The first candidates, up to a number or to a share of the weights, end at some entry, and running totals tell its band.
A search cuts the entries of the band into eight ranges, sums what lies above each cut and goes on in the range where
the sum crosses what is looked for. Sums are of integers, so the list's order doesn't matter.

A list is handed on as `source`: logits and list of the row; how many ids it has, or columns the row if it is `whole`
its own list; peak, sharpness, bits of an id.
"""

import triton
import triton.language as tl

from parkway.backends.cuda.sample_row import NOTHING, band, depth, entry, load_logits, weight

BLOCK = tl.constexpr(1024)
"""Ids that are looked at together. The first ones of a list stay in registers; most lists are no longer."""
PARTS = tl.constexpr(8)
MOST = tl.constexpr(2**63 - 1)
ANY = tl.constexpr(-1)


@triton.jit
def load_block(source, start, number):
    """Entries and weights, int64 [BLOCK], of the candidates in a band, or in any; NOTHING and 0 in place of others."""
    logits, listed, count, whole, peak, sharp, id_bits = source
    places = start + tl.arange(0, BLOCK)
    inside = places < count
    ids = tl.where(whole, places, tl.load(listed + places, mask=inside & (whole == 0), other=0))
    values = load_logits(logits, ids, inside)
    depths = depth(values, peak, sharp)
    counted = inside & ((band(depths) == number) | (number == ANY))
    return tl.where(counted, entry(values, ids, id_bits), NOTHING), tl.where(counted, weight(depths), 0)


@triton.jit
def extent(source, first_block, number):
    """The least entry in a band and the first number above all, int64."""
    low, high = tl.min(tl.where(first_block == NOTHING, MOST, first_block)), tl.max(first_block)
    for start in range(BLOCK, source[2], BLOCK):
        entries, _weights = load_block(source, start, number)
        low = tl.minimum(low, tl.min(tl.where(entries == NOTHING, MOST, entries)))
        high = tl.maximum(high, tl.max(entries))
    return low, high + 1


@triton.jit
def tally(entries, weights, cuts):
    """Number and mass of the entries that are not below each cut, int64 [PARTS]."""
    taken = entries[:, None] >= cuts[None, :]
    return tl.sum(taken.to(tl.int32), axis=0).to(tl.int64), tl.sum(tl.where(taken, weights[:, None], 0), axis=0)


@triton.jit
def search(source, number, above, count, mass):
    """Finds the entry at which candidates, from the largest down, are `count` and weigh `mass` at least.

    `number`: the band that it lies in; `above`: count and mass of all bands in front. Returns [low, high), in which the
    entry is the only one, and the mass down to it.
    """
    first_entries, first_weights = load_block(source, 0, number)
    low, high = extent(source, first_entries, number)
    low_mass = tl.zeros((), tl.int64)
    high_count = tl.zeros((), tl.int64) + above[0]
    steps = tl.arange(0, PARTS)
    goes_on = high > low
    while goes_on:
        cuts = low + ((high - low) * steps) // PARTS
        counts, masses = tally(first_entries, first_weights, cuts)
        for start in range(BLOCK, source[2], BLOCK):
            entries, weights = load_block(source, start, number)
            more, heavier = tally(entries, weights, cuts)
            counts, masses = counts + more, masses + heavier
        counts, masses = counts + above[0], masses + above[1]
        reached = (counts >= count) & (masses >= mass)  # by the lower cuts; the entry is between two neighbours
        low_mass = tl.min(tl.where(reached, masses, MOST))
        low_count = tl.min(tl.where(reached, counts, MOST))
        high_count = tl.maximum(high_count, tl.max(tl.where(reached, 0, counts)))
        low, high = tl.max(tl.where(reached, cuts, low)), tl.min(tl.where(reached, high, cuts))
        goes_on = (low_count - high_count > 1) & (high - low > 1)
    return low, high, low_mass


@triton.jit
def mass_from(source, number, least):
    """The weights of a band's entries that are not below `least`, int64."""
    mass = tl.zeros((), tl.int64)
    for start in range(0, source[2], BLOCK):
        entries, weights = load_block(source, start, number)
        mass += tl.sum(tl.where(entries >= least, weights, 0))
    return mass


@triton.jit
def largest_below(source, high):
    found = tl.full((), NOTHING, tl.int64)
    for start in range(0, source[2], BLOCK):
        entries, _weights = load_block(source, start, ANY)
        found = tl.maximum(found, tl.max(tl.where(entries < high, entries, NOTHING)))
    return found


@triton.jit
def collect(source, least, out):
    """Writes all entries that are not below `least`, one behind the other; returns their number."""
    found = tl.zeros((), tl.int32)
    for start in range(0, source[2], BLOCK):
        entries, _weights = load_block(source, start, ANY)
        chosen = (entries >= least).to(tl.int32)
        tl.store(out + found + tl.cumsum(chosen, 0) - 1, entries, mask=chosen > 0)
        found += tl.sum(chosen)
    return found


@triton.jit
def gather(logits, listed, length, capacity, vocabulary, peak, sharp, bands, CHUNK: tl.constexpr):
    """Appends to the row's list the ids of its candidates in some bands, a bit each, from this program's chunks.

    length[0] counts all of them, those for which the list has no room as well.
    """
    lanes = tl.arange(0, CHUNK)
    for start in range(tl.program_id(0) * CHUNK, vocabulary, tl.num_programs(0) * CHUNK):
        ids = start + lanes
        inside = ids < vocabulary
        numbers = band(depth(load_logits(logits, ids, inside), peak, sharp))
        counted = tl.where(inside, (bands >> numbers.to(tl.int64)) & 1, 0).to(tl.int32)
        found = tl.sum(counted)
        if found > 0:
            places = tl.atomic_add(length, found, sem="relaxed") + tl.cumsum(counted, 0) - 1
            tl.store(listed + places, ids, mask=(counted > 0) & (places < capacity))
