"""What files say about rotary positions, in one form: frequency factors, and where the two lanes of a pair lie."""

import math

import numpy as np
import numpy.typing as npt

from parkway.weights.checkpoint import RawTensor
from parkway.weights.derived import rows_of


def llama3_factors(
    base: float, dims: int, *, factor: float, low: float, high: float, context: float
) -> npt.NDArray[np.float32]:
    """What Llama 3.1 divides the frequency of each lane pair by, float32 [dims / 2].

    Pairs that turn more than `high` times within `context` positions keep their frequency, those that turn less than
    `low` times get 1/factor of it, and between the two it is a straight line in the number of turns. The formula is
    `apply_scaling` of github.com/meta-llama/llama-models, models/llama3/model.py; llama.cpp's converter stores the
    same numbers as rope_freqs.weight.
    """
    frequencies = base ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    turns = context * frequencies / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - kept) / factor + kept)).astype(np.float32)


def yarn_factors(
    base: float, dims: int, *, factor: float, fast: float, slow: float, context: float, whole: bool
) -> npt.NDArray[np.float32]:
    """What YaRN (arXiv 2309.00071) divides the frequency of each lane pair by, float32 [dims / 2].

    Pairs up to the one that turns `fast` times within `context` positions keep their frequency, those from the one
    that turns `slow` times on get 1/factor of it, and between the two it is a straight line in the pair's number.
    `whole`: the two ends are rounded to whole pairs.
    """
    first, last = (dims * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow))
    if whole:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    width = last - first or 0.001
    stretched = np.clip((np.arange(dims // 2, dtype=np.float64) - first) / width, 0, 1)
    return (1 / (stretched / factor + (1 - stretched))).astype(np.float32)


def yarn_magnitude(factor: float, scale: float = 1.0) -> float:
    """What YaRN multiplies turned lanes by, unless the file says: less certain positions, sharper attention."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1


def longrope_magnitude(factor: float, context: float) -> float:
    """What LongRoPE multiplies turned lanes by, unless the file says: for `factor` times the original `context`."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(context))


def in_halves(tensor: RawTensor, heads: int, dims: int) -> RawTensor:
    """A matrix [heads x head_dim, inputs] or bias [heads x head_dim] of q or k whose heads have the two lanes of a
    rotary pair side by side, with them half of `dims` apart, as kernels turn them."""
    lanes = np.arange(tensor.shape[0]).reshape(heads, -1)
    order = np.concatenate([lanes[:, 0:dims:2], lanes[:, 1:dims:2], lanes[:, dims:]], axis=1).reshape(-1)
    return rows_of(tensor, order)
