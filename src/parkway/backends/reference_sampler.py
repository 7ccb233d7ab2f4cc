"""How a token is chosen from one row of logits, in plain NumPy float64: the specification of the samplers.

Edits come first: what the request takes from tokens that were there, adds to some, forbids. What is reported is of the
logits before them. Temperature divides the logits; then top_k, top_p and min_p, in that order, each on what the one
before left. Candidates stand by falling weight, ties by rising id. NaN counts as -inf; a row whose largest logit is
then not finite has no token at all, and its result says so. A request may ask for other samplers, or for another
order: `walked` takes them one by one. The draw is Random123's Philox4x32-10: a function of its counters alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parkway.request import SamplingParams

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 2**32 - 1
Step = tuple[str, float, float, float]
"""A sampler by llama-server's name, and its numbers, those that it has."""
GREEDY_BELOW = 1e-5
"""A temperature below this leaves the most probable token."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a draw depends on besides the logits. `position` is that of the token that is drawn."""

    seed: int
    prompt_index: int = 0
    choice_index: int = 0
    position: int = 0


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities of the unmodified distribution; what is reported."""
    top = logits.max()
    return np.asarray(logits - (top + np.log(np.exp(logits - top).sum())), dtype=np.float64)


def penalised(logits: Floats, how: SamplingParams, prompt: Sequence[int], answer: Sequence[int]) -> Floats:
    """The logits of the token behind an answer so far, as the request's numbers change them. Forbids nothing."""
    made, tokens = logits.copy(), [*prompt, *answer]
    for token in set(tokens if how.repeat_last_n < 0 else tokens[max(0, len(tokens) - how.repeat_last_n) :]):
        made[token] *= 1 / how.repeat_penalty if made[token] > 0 else how.repeat_penalty
    for token in set(answer):
        made[token] -= how.presence_penalty + how.frequency_penalty * answer.count(token)
    for token, number in how.logit_bias:
        made[token] += number
    for token, length in repeated(tokens, how).items() if how.dry else ():
        made[token] -= how.dry_multiplier * how.dry_base ** (length - how.dry_allowed_length)
    return made


def repeated(tokens: Sequence[int], how: SamplingParams) -> dict[int, int]:
    """Which tokens would go on with a repetition that is long enough for DRY, and how long the longest is.

    In the window, what stands in front of an earlier token is compared with the end, back to the last breaker.
    """
    window = list(tokens if how.dry_penalty_last_n < 0 else tokens[max(0, len(tokens) - how.dry_penalty_last_n) :])
    most, least, found = _behind_breaker(window, how.dry_breakers), how.dry_allowed_length, dict[int, int]()
    if len(window) <= least or most < least:
        return {}
    for at in range(1, len(window)):
        length = 0
        while length < min(at, most) and window[at - 1 - length] == window[-1 - length]:
            length += 1
        if length >= least:
            found[window[at]] = max(found.get(window[at], 0), length)
    return found


def _behind_breaker(window: list[int], breakers: Sequence[tuple[int, ...]]) -> int:
    """How many tokens there are behind the breaker that begins last, the longest of those that begin there."""
    for at in reversed(range(len(window))):
        here = [len(each) for each in breakers if tuple(window[at : at + len(each)]) == each]
        if here:
            return len(window) - at - max(here)
    return len(window)


def edited(
    logits: Float32s,
    ids: npt.NDArray[np.int32],
    shrink: Float32s,
    grow: Float32s,
    offset: Float32s,
    mask: npt.NDArray[np.uint32] | None,
    *_: object,
) -> Float32s:
    """The logits that a token is chosen from, bit for bit: runner/edits.py says how. What an edit makes NaN counts as
    -inf, and what it makes infinite as the largest number.

    If all are -inf, there is no token. Edits tell more: by what it is chosen.
    """
    made = logits.copy()
    made[ids] = made[ids] * np.where(made[ids] > 0, shrink, grow) + offset
    made[np.isnan(made)] = -np.inf
    made = np.minimum(made, np.finfo(np.float32).max)
    if mask is not None:
        words = np.arange(len(made))
        made[(mask[words // 32] >> (words % 32).astype(np.uint32) & 1) == 0] = -np.inf
    return made


def most_probable(logits: Floats, count: int) -> list[int]:
    """The ids of the `count` largest logits, falling; ties by rising id."""
    return [int(i) for i in np.argsort(-logits, kind="stable")[:count]]


def candidates(logits: Floats, how: SamplingParams) -> list[int]:
    """The ids that may be drawn, in the order in which the draw walks them: by rising id if nothing is filtered."""
    if how.top_k == 0 and how.top_p >= 1 and how.min_p == 0:
        return list(range(len(logits)))
    weights = _weights(logits, how)
    kept = most_probable(weights, how.top_k or len(weights))
    if how.top_p < 1:
        mass = np.cumsum(weights[kept])
        kept = kept[: int(np.searchsorted(mass, how.top_p * mass[-1])) + 1]
    least = how.min_p * weights.max()
    return [i for i in kept if weights[i] >= least]


def choose(logits: Floats, how: SamplingParams, counters: Counters, draw: int = 0) -> int:
    """The token: the most probable at temperature 0, else where the draw falls in the candidates' summed weights.

    Draw 1 is that of a token that is chosen once more, from what a grammar allows: the first one was forbidden. It is
    another than 0, whose place is known by then.
    """
    if how.temperature == 0:
        return most_probable(logits, 1)[0]
    kept = candidates(logits, how)
    mass = np.cumsum(_weights(logits, how)[kept])
    return kept[int(np.searchsorted(mass, uniform(counters, draw) * mass[-1], side="right"))]


def walked(logits: Floats, steps: Sequence[Step], counters: Counters) -> tuple[int, float]:
    """The token that a chain of steps leaves to the draw, and its surprise in bits among what they leave.

    -1 if there is no candidate: -inf and NaN are none. Each step sees what the one before left, as falling logits.
    """
    ids = np.array([i for i in most_probable(np.nan_to_num(logits, nan=-np.inf), len(logits)) if logits[i] > -np.inf])
    if not len(ids):
        return -1, 0.0
    x = logits[ids]
    for name, *numbers in steps:
        kept, x = _STEPS[name](x, len(logits), counters, *numbers)
        ids, x = ids[kept], x[kept]
    p = np.exp(log_softmax(x))
    at = min(int(np.searchsorted(np.cumsum(p), uniform(counters) * p.sum(), side="right")), len(p) - 1)
    return int(ids[at]), float(-log_softmax(x)[at] / np.log(2))


def uniform(counters: Counters, draw: int = 0) -> float:
    """A number in [0, 1) of 53 bits; 0 is the token's draw."""
    counter = (counters.position, counters.choice_index, counters.prompt_index, draw)
    high, low, _, _ = philox(counter, (counters.seed & _WORD, counters.seed >> 32 & _WORD))
    return ((high << 32 | low) >> 11) * 2.0**-53


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10: four words of 32 bits from a counter of four and a key of two."""
    for i in range(10):
        a, b = _MULTIPLIERS[0] * counter[0], _MULTIPLIERS[1] * counter[2]
        left, right = ((key[j] + i * _WEYL[j]) & _WORD for j in (0, 1))
        counter = (b >> 32 ^ counter[1] ^ left, b & _WORD, a >> 32 ^ counter[3] ^ right, a & _WORD)
    return counter


def _weights(logits: Floats, how: SamplingParams) -> Floats:
    return np.asarray(np.exp((logits - logits.max()) / how.temperature), dtype=np.float64)


# The steps of a chain: logits that fall → which are kept (a slice of them), and all of them as they are now.

Kept = tuple[slice, Floats]


def _temperature(x: Floats, _n: int, _c: Counters, about: float, span: float, exponent: float) -> Kept:
    """With a span: between about - span and about + span, the higher the flatter."""
    if span > 0 and len(x) > 1:
        p = np.exp(log_softmax(x))
        flatness = float(_entropy(x) / np.log(len(p)))
        low, high = max(0.0, about - span), about + span
        about = low + (high - low) * max(flatness, 0.0) ** exponent
    return (slice(0, 1), x) if about < GREEDY_BELOW else (slice(None), x / about)


def _top_k(x: Floats, _n: int, _c: Counters, k: float, *_: float) -> Kept:
    return slice(0, int(k)), x


def _top_p(x: Floats, _n: int, _c: Counters, p: float, *_: float) -> Kept:
    """The fewest whose probability reaches p."""
    mass = np.cumsum(np.exp(log_softmax(x)))
    return slice(0, int(np.searchsorted(mass, p * mass[-1])) + 1), x


def _min_p(x: Floats, _n: int, _c: Counters, p: float, *_: float) -> Kept:
    return slice(0, int((np.exp(x - x[0]) >= p).sum())), x


def _top_n_sigma(x: Floats, _n: int, _c: Counters, n: float, *_: float) -> Kept:
    """Those whose logits are within n standard deviations of the largest."""
    return slice(0, int((x >= x[0] - n * x.std()).sum())), x


def _typ_p(x: Floats, _n: int, _c: Counters, p: float, *_: float) -> Kept:
    """Those whose surprise is nearest to the entropy, the fewest with more than p of the probability and all that are
    as near as the last of them: neighbours, because surprise rises."""
    logprobs = log_softmax(x)
    far = np.abs(-logprobs - _entropy(x))
    mass = np.cumsum(np.exp(logprobs)[nearest := np.argsort(far, kind="stable")])
    last = min(int(np.searchsorted(mass, p, side="right")), len(x) - 1)
    near = np.flatnonzero(far <= far[nearest[last]])
    return slice(int(near[0]), int(near[-1]) + 1), x


def _xtc(x: Floats, _n: int, counters: Counters, probability: float, threshold: float, *_: float) -> Kept:
    """Now and then leaves out all that have a threshold's probability but the least probable of them."""
    above = int((np.exp(log_softmax(x)) >= threshold).sum())
    return slice(above - 1 if above > 1 and uniform(counters, 1) < probability else 0, None), x


def _mirostat(x: Floats, vocabulary: int, _c: Counters, mu: float, *_: float) -> Kept:
    """As many as Zipf's law, with the exponent of the first hundred, says for a surprise of mu bits."""
    count = min(MIROSTAT_TOKENS, len(x)) - 1
    t = np.log((np.arange(count) + 2) / (np.arange(count) + 1))
    with np.errstate(all="ignore"):
        s = np.float64((t * (x[:count] - x[1 : count + 1])).sum()) / (t * t).sum()
        k = (((s - 1) * 2.0**mu) / (1 - float(vocabulary) ** (1 - s))) ** (1 / s)
    return slice(0, int(k) if 1 <= k < len(x) else len(x) if k >= len(x) else 1), x


MIROSTAT_TOKENS = 100


def _mirostat_2(x: Floats, _n: int, _c: Counters, mu: float, *_: float) -> Kept:
    """Those with a surprise of mu bits at most; one at least."""
    return slice(0, max(1, int((-log_softmax(x) / np.log(2) <= mu).sum()))), x


_STEPS: dict[str, Callable[..., Kept]] = {
    "temperature": _temperature,
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
    "top_n_sigma": _top_n_sigma,
    "typ_p": _typ_p,
    "xtc": _xtc,
    "mirostat": _mirostat,
    "mirostat_2": _mirostat_2,
}


def _entropy(x: Floats) -> float:
    """Of the distribution, in nats."""
    logprobs = log_softmax(x)
    return float(-(np.exp(logprobs) * logprobs).sum())
