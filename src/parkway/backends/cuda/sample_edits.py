"""The sampler's kernels for rows with edits: what a token is chosen from, and the choice handed over to its report.

Edited copies of such rows go through the same three kernels as any row; then the rows themselves, of which log-
probabilities are reported, do, as if the token had been known. Rows without edits return at once. The numbers lie in
the host's memory, wherever it likes: a word of the step says where, and each number is read once.

Of a row: COUNT (-1: it has no edits) ids, then as many numbers that shrink, grow and move, from word AT on; a bit for
each id that is allowed from word MASK on (-1: all are); STEPS of a chain of samplers from word CHAIN on (-1: it has
none).
"""

import triton
import triton.language as tl

from parkway.backends.cuda.sample_row import (
    NO_NUMBERS,
    NO_TOKEN,
    RESULT,
    SLOT,
    SURPRISE,
    TARGET,
    TOPS,
    WORDS,
    image,
    is_finite,
    load_logits,
    pictured,
)

EDIT_WORDS = 5
COUNT, AT, MASK, CHAIN, STEPS = (tl.constexpr(word) for word in range(EDIT_WORDS))
EDIT = tl.constexpr(EDIT_WORDS)
NO_IMAGE = tl.constexpr(-(2**31))
"""Below that of every logit."""
LARGEST_NUMBER = tl.constexpr(3.4028234663852886e38)
BLOCK = tl.constexpr(1024)
"""Edited logits that a program takes at a time."""


@triton.jit
def edit_word(edits, row, word):
    return tl.load(edits + row * EDIT + word)


@triton.jit
def numbers_at(place):
    """The words that an address, int64 [1], leads to."""
    return tl.load(place).to(tl.pointer_type(tl.int32))


@triton.jit
def allow_kernel(
    logits, stride, orders, edits, place, edited, edited_stride, edited_orders, own, vocabulary,
    CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Copies what a row's mask allows, -inf in place of the rest, and orders to choose. Grid (programs per row, rows).

    own[row] = the image of the row's largest logit before any edit. Of a row without edits nothing is wanted.
    """
    row, program = tl.program_id(1), tl.program_id(0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    has_edits = edit_word(edits, row, COUNT) >= 0
    if program == 0:
        words = tl.arange(0, 16)
        order = tl.load(orders + row * WORDS + words, mask=words < WORDS)
        order = tl.where((words == TOPS) | (words == SLOT), -1, order)
        chosen_here = (has_edits == 0) | (edit_word(edits, row, CHAIN) >= 0)  # by nobody, or by a chain
        order = tl.where((words == TARGET) & chosen_here, 0, order)
        tl.store(edited_orders + row * WORDS + words, order, mask=words < WORDS)
    if has_edits == 0:
        return
    logits += row.to(tl.int64) * stride
    edited += row.to(tl.int64) * edited_stride
    at = edit_word(edits, row, MASK)
    allowed = numbers_at(place) + at
    lanes, groups, bits = tl.arange(0, CHUNK), tl.arange(0, CHUNK // 32), tl.arange(0, 32)
    images = tl.full((CHUNK,), NO_IMAGE, tl.int32)
    for start in range(program * CHUNK, vocabulary, tl.num_programs(0) * CHUNK):
        inside = start + lanes < vocabulary
        values = load_logits(logits, start + lanes, inside)
        images = tl.maximum(images, image(values))
        if at >= 0:
            words = tl.load(allowed + start // 32 + groups, mask=start + groups * 32 < vocabulary, other=0)
            seen = tl.reshape((words[:, None] >> bits[None, :]) & 1, (CHUNK,))
            values = tl.where(seen != 0, values, float("-inf"))
        tl.store(edited + start + lanes, values, mask=inside)
    tl.atomic_max(own + row, tl.max(images), sem="relaxed")


@triton.jit
def move_kernel(edits, place, edited, stride, PDL: tl.constexpr):
    """Shrinks or grows logits and moves them, to the largest number at most. Grid (programs per row, rows)."""
    row = tl.program_id(1)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    count = edit_word(edits, row, COUNT)
    if count <= 0:
        return
    edited += row.to(tl.int64) * stride
    ids = numbers_at(place) + edit_word(edits, row, AT)
    numbers = ids.to(tl.pointer_type(tl.float32), bitcast=True) + count
    lanes = tl.arange(0, BLOCK)
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        inside = start + lanes < count
        places = edited + tl.load(ids + start + lanes, mask=inside, other=0)
        shrink = tl.load(numbers + start + lanes, mask=inside)
        grow = tl.load(numbers + count + start + lanes, mask=inside)
        offset = tl.load(numbers + 2 * count + start + lanes, mask=inside)
        values = tl.load(places, mask=inside, other=0.0)
        moved = values * tl.where(values > 0, shrink, grow) + offset
        tl.store(places, tl.where(moved > LARGEST_NUMBER, LARGEST_NUMBER, moved), mask=inside)


@triton.jit
def adopt_kernel(orders, edits, edited, stride, own, chosen, PDL: tl.constexpr):
    """From here on a row with edits is one whose token is known; `own` is as the next step needs it. Grid (rows,)."""
    row = tl.program_id(0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if edit_word(edits, row, COUNT) >= 0:
        token = tl.load(chosen + row * RESULT)
        logit = load_logits(edited + row.to(tl.int64) * stride, token, token >= 0)
        target = tl.where(logit == float("-inf"), NO_TOKEN, token)
        target = tl.where(is_finite(pictured(tl.load(own + row))), target, NO_NUMBERS)
        tl.store(orders + row * WORDS + TARGET, target)
        tl.store(own + row, NO_IMAGE)


@triton.jit
def tell_kernel(edits, chosen, results, PDL: tl.constexpr):
    """Copies the surprise of what a chain has chosen, when all else of the result is there. Grid (rows,)."""
    row = tl.program_id(0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    if edit_word(edits, row, CHAIN) >= 0:
        tl.store(results + row * RESULT + SURPRISE, tl.load(chosen + row * RESULT + SURPRISE))
