"""How a token is chosen from one row of logits, in plain NumPy float64: the specification of the samplers.

Edits come first: what the request takes from tokens that were there, adds to some, forbids. What is reported is of the
logits before them. Temperature divides the logits; then top_k, top_p and min_p, in that order, each on what the one
before left. Candidates stand by falling weight, ties by rising id. The draw is Random123's Philox4x32-10: a function of
its counters alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parkway.request import SamplingParams

Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 2**32 - 1


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
    return made


def edited(
    logits: Float32s,
    ids: npt.NDArray[np.int32],
    shrink: Float32s,
    grow: Float32s,
    offset: Float32s,
    mask: npt.NDArray[np.uint32] | None,
) -> Float32s:
    """The logits that a token is chosen from, bit for bit: runner/edits.py says how. NaN counts as -inf.

    If all are -inf, there is no token.
    """
    made = logits.copy()
    made[ids] = made[ids] * np.where(made[ids] > 0, shrink, grow) + offset
    made[np.isnan(made)] = -np.inf
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


def choose(logits: Floats, how: SamplingParams, counters: Counters) -> int:
    """The token: the most probable at temperature 0, else where the draw falls in the candidates' summed weights."""
    if how.temperature == 0:
        return most_probable(logits, 1)[0]
    kept = candidates(logits, how)
    mass = np.cumsum(_weights(logits, how)[kept])
    return kept[int(np.searchsorted(mass, uniform(counters) * mass[-1], side="right"))]


def uniform(counters: Counters) -> float:
    """A number in [0, 1) of 53 bits."""
    counter = (counters.position, counters.choice_index, counters.prompt_index, 0)
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
