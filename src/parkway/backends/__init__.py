"""The protocols between models and devices: one table of operations, one signature each, whatever computes them.

A value is rows of activations; a weight is a matrix or vector in the backend's own layout. Neither has a shape that a
model file may look at: it only calls operations.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from parkway.plan.step import PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class KvShape:
    """What one chat keeps per token: `layers` x (keys, values) x `kv_heads` x `head_dim` numbers."""

    layers: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Rings:
    """Where layers that see a window keep keys and values, if not in the pool: each slot has `pages` pages of their own
    for them, and page p of its chat lies in the one of number p % pages.

    So a token takes the place of the one that came a whole ring before it, wherever in a page a chunk begins. `layers`:
    which they are, as `Attention.layer` counts. All rows of a chunk are written before one is looked at, so a ring has
    room for `chunk` rows and for what the first of them sees of a `window` beside itself.
    """

    layers: tuple[int, ...]
    window: int
    chunk: int

    @property
    def pages(self) -> int:
        return -(-(self.window - 1 + self.chunk) // PAGE_TOKENS)

    @property
    def kept(self) -> int:
        """Pages before a page boundary of which rows behind it may see something."""
        return -(-self.window // PAGE_TOKENS)

    def tables(self, slots: int, pages: int) -> npt.NDArray[np.int32]:
        """Page tables of chats of so many pages, int32 [slots, pages]: they follow from the slot's number alone."""
        first = np.arange(slots, dtype=np.int32)[:, None] * np.int32(self.pages)
        return first + np.arange(pages, dtype=np.int32) % np.int32(self.pages)

    def runs(self, tokens: int) -> list[tuple[int, int, int]]:
        """What is kept of a chat at a page boundary behind so many tokens, as runs that lie one behind the other in the
        ring too: (its first page in the ring, its first among those that are kept, pages)."""
        end = tokens // PAGE_TOKENS
        first = max(0, end - self.kept)
        turn = min(end, first - first % self.pages + self.pages)
        runs = ((first % self.pages, 0, turn - first), (0, turn - first, end - turn))
        return [run for run in runs if run[2]]


def place_of(layer: int, rings: Rings | None) -> tuple[bool, int]:
    """Whether a layer's keys and values lie in rings, and the number that the layer has there or in the pool."""
    among = rings.layers if rings else ()
    return (True, among.index(layer)) if layer in among else (False, layer - sum(other < layer for other in among))


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions: lane pair i of a head turns by position * base^(-2i / dims) / factors[i].

    Only the first `dims` lanes are turned. `pairs`: whether a pair's lanes are neighbours (GGUF's llama) or lie half of
    `dims` apart (Hugging Face's layout). `magnitude` multiplies what is turned (YaRN's attention factor).
    """

    base: float
    dims: int
    pairs: Literal["neighbours", "halves"]
    factors: npt.NDArray[np.float32] | None = None
    magnitude: float = 1.0

    def turns(self, positions: int) -> npt.NDArray[np.float32]:
        """(cos, sin) by position, float32 [positions, dims / 2, 2], computed in float64."""
        inverse = self.base ** (-np.arange(0, self.dims, 2, dtype=np.float64) / self.dims)
        if self.factors is not None:
            inverse = inverse / self.factors
        angles = np.outer(np.arange(positions, dtype=np.float64), inverse)
        return (self.magnitude * np.stack([np.cos(angles), np.sin(angles)], axis=-1)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMS norms of every head of q and k before they are turned (Qwen3); a weight of head_dim values for each."""

    q: Any
    k: Any
    epsilon: float


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """How one layer attends. `layer` counts the layers that keep keys and values: where they lie in a page, unless some
    lie in rings.

    `rope`: None where positions are not told (SmolLM3's every fourth layer). A row sees its last `window` positions,
    its own among them; all where that is 0. A `soft_cap` c makes c tanh(s / c) of a score s; 0: none. `sinks`: one more
    score for each head, without a value; a vector of `heads` values.
    """

    layer: int
    heads: int
    scale: float
    rope: Rope | None
    norms: HeadNorms | None = None
    window: int = 0
    soft_cap: float = 0.0
    sinks: Any | None = None


Activation = Literal["silu", "gelu", "clamped"]
"""What a gate goes through: x sigmoid(x); gelu in its tanh form; gpt-oss's, where a gate x is at most 7 and becomes
x sigmoid(1.702 x), and an up of -7 to 7 has 1 added."""


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """A mixture of experts: each row goes through the `chosen` experts whose scores are largest, the lower number first
    where they tie.

    `router` is a matrix [count, width], perhaps with a bias; `gate`, `up`, `down` are what `Pack.stack` made. With
    `softmax` "all" a score is a share of all experts', and `normalised` makes the chosen ones' sum 1; with "chosen" the
    softmax is taken over the chosen ones' scores alone.
    """

    count: int
    chosen: int
    router: Any
    gate: Any
    up: Any
    down: Any
    softmax: Literal["all", "chosen"]
    normalised: bool
    activation: Activation = "silu"


@dataclass(frozen=True, slots=True)
class StateShape:
    """What one chat keeps however long it is: of each of `layers` delta nets, `v_heads` matrices [k_dim, v_dim], the
    last inputs of the convolution over its q, k and v, and what its rows since the last anchor have left."""

    layers: int
    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    taps: int


@dataclass(frozen=True, slots=True, eq=False)
class DeltaNet:
    """A gated delta net. `layer` counts the layers that keep state.

    `convolution` is a matrix of [2 k_heads k_dim + v_heads v_dim, taps] (channels of q, then k, then v), as a vector in
    that order, the oldest tap first. `decay` and `bias` are vectors of v_heads values: the state is first multiplied
    by exp(decay * softplus(a + bias)), where decay is negative. `tiled`: head h of v uses head h % k_heads of q and k
    (llama.cpp's files of Qwen3.5, whose quantised columns can't be put in another order), not one in a row of heads.
    """

    layer: int
    convolution: Any
    decay: Any
    bias: Any
    epsilon: float
    tiled: bool = False


class Operations(Protocol):
    """What a model file may call. Row r of every result depends on row r of the arguments alone (and, in attention and
    delta nets, on the chat's own earlier tokens)."""

    def embed(self, table: Any, scale: float = 1.0) -> Any:
        """Rows of `table` [vocabulary, width] for the step's tokens, times `scale`."""

    def rms_norm(self, x: Any, weight: Any, epsilon: float) -> Any:
        """x / sqrt(mean(x²) + epsilon) * weight."""

    def norm_add(self, x: Any, weight: Any, epsilon: float, residual: Any) -> Any:
        """residual + rms_norm(x)."""

    def linear(self, x: Any, weights: Any) -> tuple[Any, ...]:
        """x Wᵀ (+ bias, where a weight has one) for each W [outputs, inputs] of matrices that were packed together."""

    def linear_add(self, x: Any, weight: Any, residual: Any) -> Any:
        """residual + x Wᵀ (+ bias)."""

    def gated(self, x: Any, gate: Any, up: Any, activation: Activation = "silu") -> Any:
        """activation(x Gᵀ) * (x Uᵀ)."""

    def rope_and_write(self, q: Any, k: Any, v: Any, how: Attention) -> Any:
        """Norms (if there are norms) and turns q and k by position, writes k and v of the layer to the chat's pages,
        returns the turned q."""

    def attention(self, q: Any, how: Attention) -> Any:
        """softmax(scale q·k) v over the chat's positions up to the row's own, or the last `window` of them."""

    def sigmoid_gate(self, x: Any, gate: Any) -> Any:
        """x * sigmoid(gate); `gate` is as wide as x, or has one value for each row."""

    def add(self, x: Any, residual: Any) -> Any:
        """residual + x."""

    def routed(self, x: Any, weight: Any, epsilon: float, router: Any) -> tuple[Any, Any]:
        """rms_norm(x), and its product with a mixture's router: the scores of all experts."""

    def experts_add(self, x: Any, scores: Any, experts: Experts, residual: Any) -> Any:
        """residual + the sum of the chosen experts' results times their weights, added in the order of their choice."""

    def delta_net(self, q: Any, k: Any, v: Any, a: Any, b: Any, how: DeltaNet) -> Any:
        """The gated delta rule over the chat's rows up to this one: [rows, v_heads * v_dim].

        q, k, v: what goes into the convolution, whose results go through silu; then every head of q and k is divided by
        sqrt(sum of squares + epsilon), and q by sqrt(k_dim). a and b have v_heads values a row: the state S decays as
        DeltaNet says, then becomes S + sigmoid(b) k (v - kᵀS), and the result is qᵀS. Head h of v uses head
        h // (v_heads / k_heads) of q and k, or h % k_heads where the net is `tiled`.
        """

    def gated_norm(self, x: Any, gate: Any, weight: Any, epsilon: float) -> Any:
        """rms_norm of every run of as many values as `weight` has (a head), times silu(gate)."""

    def take(self, x: Any) -> Any:
        """Only the rows whose logits somebody wants."""

    def logits(self, x: Any, head: Any, soft_cap: float = 0.0) -> Any:
        """x Wᵀ in fp32: what tokens are chosen from. A `soft_cap` c makes c tanh(l / c) of a logit l."""
