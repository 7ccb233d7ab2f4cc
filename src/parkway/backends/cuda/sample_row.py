"""What the sampler's kernels share about one row: its orders, and a logit as a weight, an entry and a band.

Weights are integers, so that sums are exact and no order of adding them can change a bit: how many programs share a row
is free. A candidate's entry is one integer that is larger for a larger logit and, among equal logits, for a lower id:
candidates by falling weight, ties by rising id, are entries in falling order.
"""

import triton
import triton.language as tl

ORDER_WORDS = 12
"""int32 words of a row's orders, in the order of `sample.ORDER`."""
TEMPERATURE, TOP_P, MIN_P, TOP_K, TARGET, TOPS = (tl.constexpr(word) for word in range(6))
SEED_LOW, SEED_HIGH, PROMPT_INDEX, CHOICE_INDEX, POSITION, SLOT = (tl.constexpr(word) for word in range(6, 12))
WORDS = tl.constexpr(ORDER_WORDS)

CHOOSE, NO_TOKEN, NO_NUMBERS = tl.constexpr(-1), tl.constexpr(-2), tl.constexpr(-3)
"""Targets that are no token: one is to be chosen; there is none, because a row's edits forbid all; there is none,
because the row's largest logit is not finite."""

MAX_TOPS = 20
"""Most probable tokens that a row may report."""
RESULT_WORDS = 2 + 2 * MAX_TOPS + 1
"""int32 words of a row's result, in the order of `sample.RESULT`."""
RESULT = tl.constexpr(RESULT_WORDS)
REPORTED = tl.constexpr(MAX_TOPS)
SURPRISE = tl.constexpr(RESULT_WORDS - 1)
"""The last of them."""

CHUNK = 2048
"""Neighbouring columns that a program takes at a time."""
BANDS = tl.constexpr(64)

ONE = tl.constexpr(float(2**44))
"""The largest weight: 2**18 of them fit into 63 bits, and one of 2**-44 times that is still seen."""
LOG2_E = tl.constexpr(1.4426950408889634)
NOTHING = tl.constexpr(-(2**63))
"""Below every entry."""


@triton.jit
def order_word(orders, row, word):
    return tl.load(orders + row * WORDS + word)


@triton.jit
def order_real(orders, row, word):
    return order_word(orders, row, word).to(tl.float32, bitcast=True)


@triton.jit
def draws(orders, row):
    """Whether the token is drawn: neither looked up nor the most probable."""
    return (order_word(orders, row, TARGET) == CHOOSE) & (order_real(orders, row, TEMPERATURE) > 0)


@triton.jit
def filters(orders, row):
    """Whether the draw is among fewer candidates than all, or all in falling order."""
    narrowed = (order_word(orders, row, TOP_K) > 0) | (order_real(orders, row, TOP_P) < 1)
    return draws(orders, row) & (narrowed | (order_real(orders, row, MIN_P) > 0))


@triton.jit
def sharpness(orders, row):
    """What turns a distance of logits into the binary logarithm of a weight, fp32. Rows that draw nothing have 1."""
    temperature = tl.where(draws(orders, row), order_real(orders, row, TEMPERATURE), 1.0)
    return (tl.full((), LOG2_E, tl.float64) / temperature.to(tl.float64)).to(tl.float32)


@triton.jit
def load_logits(logits, ids, inside):
    """Logits by id; NaN, and what is not `inside`, counts as -inf."""
    values = tl.load(logits + ids, mask=inside, other=float("-inf"))
    return tl.where(values == values, values, float("-inf"))


@triton.jit
def image(logits):
    """int32 in the order of the logits; both zeros are one."""
    bits = tl.where(logits == 0, 0.0, logits).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def entry(logits, ids, id_bits):
    return (image(logits).to(tl.int64) << id_bits) | ((1 << id_bits) - 1 - ids)


@triton.jit
def id_of(entries, id_bits):
    return (1 << id_bits) - 1 - (entries & ((1 << id_bits) - 1)).to(tl.int32)


@triton.jit
def pictured(images):
    """The logits of images."""
    return (images ^ ((images >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def logit_of(entries, id_bits):
    return pictured((entries >> id_bits).to(tl.int32))


@triton.jit
def is_finite(logit):
    return (logit > float("-inf")) & (logit < float("inf"))


@triton.jit
def depth(logits, peak, sharp):
    """-log2 of the weights, at least 0. Logits like the peak have 0 even where both are infinite."""
    return tl.where(logits == peak, 0.0, (peak - logits) * sharp)


@triton.jit
def weight(depths):
    """int64, ONE at the peak."""
    return (tl.exp2(-depths) * ONE).to(tl.int64)


@triton.jit
def band(depths):
    """Which of 64 bands a depth lies in: 16 up to 4, 16 up to 12, 16 up to 28, 16 up to 60 and beyond.

    Made of the bits of a float, hence in the order of depths whatever is rounded: no band overlaps another.
    """
    return tl.minimum(((depths + 4.0).to(tl.int32, bitcast=True) >> 19) - 2064, 63)


@triton.jit
def uniform53(orders, row, draw=0):
    """53 random bits, uint64: a function of seed, prompt, choice, position and draw alone (Philox4x32-10)."""
    position = order_word(orders, row, POSITION).to(tl.uint32, bitcast=True)
    choice = order_word(orders, row, CHOICE_INDEX).to(tl.uint32, bitcast=True)
    prompt = order_word(orders, row, PROMPT_INDEX).to(tl.uint32, bitcast=True)
    low = order_word(orders, row, SEED_LOW).to(tl.uint32, bitcast=True)
    high = order_word(orders, row, SEED_HIGH).to(tl.uint32, bitcast=True)
    first, second, _, _ = tl.philox_impl(position, choice, prompt, position * 0 + draw, low, high)
    return ((first.to(tl.uint64) << 32) | second.to(tl.uint64)) >> 11


@triton.jit
def store_result(results, last_tokens, orders, row, token, logprob, tops):
    """Writes token and log-probability, and zeros for the most probable ones if none are wanted.

    A row without a token has -1, or -2 where there are no numbers; whoever reads its slot's last one finds some token,
    since it can't be told in time.
    """
    words = tl.arange(0, 64)
    told = tl.where(token < 0, token + 1, token)
    values = tl.where(words == 0, told, tl.where(words == 1, logprob.to(tl.int32, bitcast=True), 0))
    written = (words < tl.where(tops > 0, 2, RESULT)) | (words == SURPRISE)
    tl.store(results + row * RESULT + words, values, mask=written)
    slot = order_word(orders, row, SLOT)
    if slot >= 0:
        tl.store(last_tokens + slot, tl.maximum(token, 0))
