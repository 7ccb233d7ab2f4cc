"""What files say about rotary positions, in one form: frequency factors, and where the two lanes of a pair lie."""

import math

import numpy as np
import numpy.typing as npt

from parkway.weights.checkpoint import RawTensor


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


def in_halves(tensor: RawTensor, heads: int, dims: int) -> RawTensor:
    """A matrix [heads x head_dim, inputs] or bias [heads x head_dim] of q or k whose heads have the two lanes of a
    rotary pair side by side, with them half of `dims` apart, as kernels turn them. Copies the tensor."""
    lanes = np.arange(tensor.shape[0]).reshape(heads, -1)
    order = np.concatenate([lanes[:, 0:dims:2], lanes[:, 1:dims:2], lanes[:, dims:]], axis=1).reshape(-1)
    rows = tensor.raw.reshape(tensor.shape[0], -1)
    return RawTensor(tensor.name, tensor.shape, tensor.type, rows[order].reshape(tensor.raw.shape))
