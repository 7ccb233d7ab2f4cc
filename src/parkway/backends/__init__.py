"""The protocols between models and devices: one table of operations, one signature each, whatever computes them.

A value is rows of activations; a weight is a matrix or vector in the backend's own layout. Neither has a shape that a
model file may look at: it only calls operations.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class KvShape:
    """What one chat keeps per token: `layers` x (keys, values) x `kv_heads` x `head_dim` numbers."""

    layers: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions: lane pair i of a head turns by position * base^(-2i / dims) / factors[i].

    `pairs`: whether a pair's lanes are neighbours (GGUF's llama) or lie half a head apart (Hugging Face's layout).
    """

    base: float
    dims: int
    pairs: Literal["neighbours", "halves"]
    factors: npt.NDArray[np.float32] | None = None

    def turns(self, positions: int) -> npt.NDArray[np.float32]:
        """(cos, sin) by position, float32 [positions, dims / 2, 2], computed in float64."""
        inverse = self.base ** (-np.arange(0, self.dims, 2, dtype=np.float64) / self.dims)
        if self.factors is not None:
            inverse = inverse / self.factors
        angles = np.outer(np.arange(positions, dtype=np.float64), inverse)
        return np.stack([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMS norms of every head of q and k before they are turned (Qwen3); a weight of head_dim values for each."""

    q: Any
    k: Any
    epsilon: float


class Operations(Protocol):
    """What a model file may call. Row r of every result depends on row r of the arguments alone (and, in attention,
    on the chat's own earlier tokens)."""

    def embed(self, table: Any) -> Any:
        """Rows of `table` [vocabulary, width] for the step's tokens."""

    def rms_norm(self, x: Any, weight: Any, epsilon: float) -> Any:
        """x / sqrt(mean(x²) + epsilon) * weight."""

    def linear(self, x: Any, weights: Any) -> tuple[Any, ...]:
        """x Wᵀ (+ bias, where a weight has one) for each W [outputs, inputs] of matrices that were packed together."""

    def linear_add(self, x: Any, weight: Any, residual: Any) -> Any:
        """residual + x Wᵀ."""

    def gated(self, x: Any, gate: Any, up: Any) -> Any:
        """silu(x Gᵀ) * (x Uᵀ)."""

    def rope_and_write(self, q: Any, k: Any, v: Any, layer: int, norms: HeadNorms | None = None) -> Any:
        """Norms (if there are norms) and turns q and k by position, writes k and v of `layer` to the chat's pages,
        returns the turned q."""

    def attention(self, q: Any, layer: int) -> Any:
        """softmax(q·k / sqrt(head_dim)) v over the chat's positions up to the row's own."""

    def take(self, x: Any) -> Any:
        """Only the rows whose logits somebody wants."""

    def logits(self, x: Any, head: Any) -> Any:
        """x Wᵀ in fp32: what tokens are chosen from."""
