"""A mixture of experts in float64: which experts a row goes through, and what they make of it."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from parkway.backends import Activation, Experts

Floats = npt.NDArray[np.float64]


class Products(Protocol):
    """What is needed of an operations table."""

    def linear(self, x: Floats, weights: Sequence[Any]) -> tuple[Floats, ...]: ...

    def gated(self, x: Floats, gate: Any, up: Any, activation: Activation = ...) -> Floats: ...


def experts_add(ops: Products, x: Floats, scores: Floats, experts: Experts, residual: Floats) -> Floats:
    """`Operations.experts_add` by an operations table's products; gate, up and down are sequences of matrices."""
    chosen, weights = _choice(experts, scores)
    added = np.array(residual)
    for row, (numbers, shares) in enumerate(zip(chosen, weights, strict=True)):
        for number, share in zip(numbers, shares, strict=True):
            gate, up, down = (stack[number] for stack in (experts.gate, experts.up, experts.down))
            hidden = ops.gated(x[row : row + 1], gate, up, experts.activation)
            added[row] += share * ops.linear(hidden, [down])[0][0]
    return added


def _choice(experts: Experts, logits: Floats) -> tuple[npt.NDArray[np.int64], Floats]:
    """Of each row the chosen experts' numbers in the order of choice, and their weights."""
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, : experts.chosen]
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = np.take_along_axis(powers, chosen, axis=1)
    total = powers if experts.softmax == "all" and not experts.normalised else shares
    return chosen, shares / total.sum(axis=1, keepdims=True)
