"""Gated delta nets in plain NumPy float64, one token after the other. Knows nothing of blocks, anchors or slots."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parkway.backends import DeltaNet, StateShape

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class ReferenceState:
    """What one chat has left behind in one layer: S [v_heads, k_dim, v_dim], inputs [taps - 1, channels] of the
    convolution, the oldest first."""

    matrices: Floats
    inputs: Floats

    @classmethod
    def empty(cls, shape: StateShape) -> "ReferenceState":
        channels = 2 * shape.k_heads * shape.k_dim + shape.v_heads * shape.v_dim
        return cls(np.zeros((shape.v_heads, shape.k_dim, shape.v_dim)), np.zeros((shape.taps - 1, channels)))


States = dict[tuple[int, int], ReferenceState]
"""By (a chat's first page, layer): a chat keeps its first page as long as it computes."""


def delta_net(
    states: States, shape: StateShape, how: DeltaNet, places: Sequence[tuple[int, int]], *inputs: Floats
) -> Floats:
    """`backends.Operations.delta_net`; `inputs` are q, k, v, a, b; `places`: each row's chat (its first
    page) and position."""
    q, k, v, a, b = inputs
    mixed = np.concatenate([q, k, v], axis=1)
    made = np.empty((len(v), shape.v_heads * shape.v_dim))
    for r, (chat, position) in enumerate(places):
        if position == 0:
            states[chat, how.layer] = ReferenceState.empty(shape)
        made[r] = _advance(states[chat, how.layer], shape, how, mixed[r], a[r], b[r])
    return made


def gated_norm(x: Floats, gate: Floats, weight: Floats, epsilon: float) -> Floats:
    """`backends.Operations.gated_norm`."""
    heads = x.reshape(len(x), -1, len(weight))
    normed = heads / np.sqrt(np.mean(heads * heads, axis=-1, keepdims=True) + epsilon) * weight
    gated: Floats = normed.reshape(x.shape) * _silu(gate)
    return gated


def _advance(state: ReferenceState, shape: StateShape, how: DeltaNet, row: Floats, a: Floats, b: Floats) -> Floats:
    """One token: the convolution over it and the inputs before it, then the delta rule."""
    seen = np.concatenate([state.inputs, row[None]])
    state.inputs = seen[1:]
    mixed = _silu((seen.T * np.asarray(how.convolution).reshape(-1, shape.taps)).sum(axis=1))
    q, k, v = np.split(mixed, [shape.k_heads * shape.k_dim, 2 * shape.k_heads * shape.k_dim])
    heads = np.arange(shape.v_heads)
    shares = heads % shape.k_heads if how.tiled else heads // (shape.v_heads // shape.k_heads)
    queries, keys = (_unit(each.reshape(shape.k_heads, -1), how.epsilon)[shares] for each in (q, k))
    decay = np.exp(how.decay * np.logaddexp(0, a + how.bias))
    matrices = state.matrices * decay[:, None, None]
    wrong = v.reshape(shape.v_heads, -1) - np.einsum("hkv,hk->hv", matrices, keys)
    written = wrong / (1 + np.exp(-b))[:, None]
    state.matrices = matrices + np.einsum("hk,hv->hkv", keys, written)
    read: Floats = np.einsum("hkv,hk->hv", state.matrices, queries / np.sqrt(shape.k_dim))
    return read.reshape(-1)


def _unit(heads: Floats, epsilon: float) -> Floats:
    unit: Floats = heads / np.sqrt((heads * heads).sum(axis=-1, keepdims=True) + epsilon)
    return unit


def _silu(x: Floats) -> Floats:
    gated: Floats = x / (1 + np.exp(-x))
    return gated
