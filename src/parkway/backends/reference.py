"""Every operation in plain NumPy float64, eagerly, a step at a time: the specification of what the kernels compute.

Knows nothing of tiles, threads or splits. Memory that nobody wrote is NaN, so that whoever reads it shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from parkway.backends import (
    Activation,
    Attention,
    DeltaNet,
    Experts,
    KvShape,
    Rope,
    StateShape,
    reference_experts,
    reference_states,
)
from parkway.backends.quant import QUANTISED, decode
from parkway.plan.step import PAGE_TOKENS

Floats = npt.NDArray[np.float64]
GROUP = 32
"""Neighbouring values of a row that share a scale when they are quantised to int8."""


@dataclass(frozen=True, slots=True)
class ReferenceMatrix:
    """A decoded matrix, float64 [outputs, inputs], the type that it had in the file, and a bias of `outputs` values."""

    type: str
    values: Floats
    bias: Floats


class Tensor(Protocol):
    """What is needed of a tensor of a model file; `raw` is uint8 [rows, row_bytes]."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def type(self) -> Any: ...
    @property
    def raw(self) -> npt.NDArray[np.uint8]: ...


class ReferencePack:
    """Takes a file's tensors in by decoding them."""

    def matrix(self, tensor: Tensor, bias: Tensor | None = None) -> ReferenceMatrix:
        added = np.zeros(tensor.shape[0]) if bias is None else self.vector(bias)
        return ReferenceMatrix(tensor.type.name, self._values(tensor).reshape(tensor.shape), added)

    def vector(self, tensor: Tensor) -> Floats:
        return self._values(tensor).reshape(-1)

    def stack(self, experts: Sequence[Tensor], biases: Sequence[Tensor] | None = None) -> list[ReferenceMatrix]:
        added: Sequence[Tensor | None] = [None] * len(experts) if biases is None else biases
        return [self.matrix(*each) for each in zip(experts, added, strict=True)]

    def together(self, *matrices: ReferenceMatrix) -> tuple[ReferenceMatrix, ...]:
        return matrices

    def _values(self, tensor: Tensor) -> Floats:
        return decode(tensor.name, tensor.type.name, tensor.raw).astype(np.float64)


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """The rows of one step: `tables[r][p]` is the page of positions 64p … 64p + 63 of row r's chat."""

    tokens: Sequence[int]
    positions: Sequence[int]
    tables: Sequence[Sequence[int]]
    logit_rows: Sequence[int]


@dataclass(slots=True)
class ReferenceOps:
    """`backends.Operations` on arrays float64 [rows, width]. Set `step`, then run a model's forward pass.

    activations "int8" rounds what a quantised matrix multiplies to 8 bits, as its kernels do; "f32" rounds nothing.
    """

    kv: KvShape
    activations: str = "f32"
    step: ReferenceStep = field(default_factory=lambda: ReferenceStep((), (), (), ()))
    pages: dict[int, Floats] = field(default_factory=dict)
    """By page number: float64 [layers, (keys, values), PAGE_TOKENS, kv_heads, head_dim]."""
    state_shape: StateShape | None = None
    states: reference_states.States = field(default_factory=dict)

    def embed(self, table: ReferenceMatrix, scale: float = 1.0) -> Floats:
        return scale * np.take(table.values, self.step.tokens, axis=0)

    def rms_norm(self, x: Floats, weight: Floats, epsilon: float) -> Floats:
        normed: Floats = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight
        return normed

    def norm_add(self, x: Floats, weight: Floats, epsilon: float, residual: Floats) -> Floats:
        return residual + self.rms_norm(x, weight, epsilon)

    def linear(self, x: Floats, weights: Sequence[ReferenceMatrix]) -> tuple[Floats, ...]:
        return tuple(self._seen_by(weight, x) @ weight.values.T + weight.bias for weight in weights)

    def linear_add(self, x: Floats, weight: ReferenceMatrix, residual: Floats) -> Floats:
        return residual + self.linear(x, [weight])[0]

    def gated(self, x: Floats, gate: ReferenceMatrix, up: ReferenceMatrix, activation: Activation = "silu") -> Floats:
        return gated(activation, *self.linear(x, [gate, up]))

    def rope_and_write(self, q: Floats, k: Floats, v: Floats, how: Attention) -> Floats:
        queries, keys = self._by_head(q), self._by_head(k)
        if how.norms:
            queries = self.rms_norm(queries, how.norms.q, how.norms.epsilon)
            keys = self.rms_norm(keys, how.norms.k, how.norms.epsilon)
        if how.rope:
            queries, keys = self._turned(queries, how.rope), self._turned(keys, how.rope)
        for r, (keys_of_row, values_of_row) in enumerate(zip(keys, self._by_head(v), strict=True)):
            page, at = self._place(r, self.step.positions[r])
            page[how.layer, :, at] = keys_of_row, values_of_row
        return queries.reshape(q.shape)

    def attention(self, q: Floats, how: Attention) -> Floats:
        rows = [self._attend(r, queries, how) for r, queries in enumerate(self._by_head(q))]
        return np.asarray(rows, np.float64).reshape(q.shape)

    def sigmoid_gate(self, x: Floats, gate: Floats) -> Floats:
        return x * sigmoid(gate)

    def add(self, x: Floats, residual: Floats) -> Floats:
        return residual + x

    def routed(self, x: Floats, weight: Floats, epsilon: float, router: ReferenceMatrix) -> tuple[Floats, Floats]:
        normed = self.rms_norm(x, weight, epsilon)
        return normed, self.linear(normed, [router])[0]

    def experts_add(self, x: Floats, scores: Floats, experts: Experts, residual: Floats) -> Floats:
        return reference_experts.experts_add(self, x, scores, experts, residual)

    def delta_net(self, q: Floats, k: Floats, v: Floats, a: Floats, b: Floats, how: DeltaNet) -> Floats:
        assert self.state_shape, "a model without states"
        chats = [table[0] for table in self.step.tables]
        places = list(zip(chats, self.step.positions, strict=True))
        return reference_states.delta_net(self.states, self.state_shape, how, places, q, k, v, a, b)

    def gated_norm(self, x: Floats, gate: Floats, weight: Floats, epsilon: float) -> Floats:
        return reference_states.gated_norm(x, gate, weight, epsilon)

    def take(self, x: Floats) -> Floats:
        return np.take(x, self.step.logit_rows, axis=0)

    def logits(self, x: Floats, head: ReferenceMatrix, soft_cap: float = 0.0) -> Floats:
        return capped(self.linear(x, [head])[0], soft_cap)

    def _seen_by(self, weight: ReferenceMatrix, x: Floats) -> Floats:
        return int8_rounded(x) if self.activations == "int8" and weight.type in QUANTISED else x

    def _by_head(self, x: Floats) -> Floats:
        return x.reshape(len(x), -1, self.kv.head_dim)

    def _turned(self, x: Floats, rope: Rope) -> Floats:
        """Every lane pair (a, b) of x [rows, heads, head_dim] turned by its row's position."""
        half = rope.dims // 2
        exponents = np.arange(half, dtype=np.float64) * -2 / rope.dims
        inverse = rope.base**exponents / (1 if rope.factors is None else rope.factors)
        angles = np.outer(self.step.positions, inverse)[:, None, :]
        cos, sin = rope.magnitude * np.cos(angles), rope.magnitude * np.sin(angles)
        neighbours = rope.pairs == "neighbours"
        first = slice(0, rope.dims, 2) if neighbours else slice(0, half)
        second = slice(1, rope.dims, 2) if neighbours else slice(half, rope.dims)
        turned = x.copy()
        turned[..., first] = x[..., first] * cos - x[..., second] * sin
        turned[..., second] = x[..., first] * sin + x[..., second] * cos
        return turned

    def _attend(self, row: int, queries: Floats, how: Attention) -> Floats:
        """One row's queries [heads, head_dim] over the positions of its chat that it sees."""
        end = self.step.positions[row] + 1
        begin = max(0, end - how.window) if how.window else 0
        used = [self._place(row, start)[0][how.layer] for start in range(0, end, PAGE_TOKENS)]
        seen = np.concatenate(used, axis=1)[:, begin:end]
        keys, values = seen.repeat(how.heads // self.kv.kv_heads, axis=2)
        scores = capped(np.einsum("hd,phd->hp", queries, keys) * how.scale, how.soft_cap)
        largest = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - largest)
        total = weights.sum(axis=1, keepdims=True)
        if how.sinks is not None:
            total = total + np.exp(how.sinks[:, None] - largest)
        attended: Floats = np.einsum("hp,phd->hd", weights / total, values)
        return attended

    def _place(self, row: int, position: int) -> tuple[Floats, int]:
        """The page of a position of the row's chat, and where in it."""
        number = self.step.tables[row][position // PAGE_TOKENS]
        shape = (self.kv.layers, 2, PAGE_TOKENS, self.kv.kv_heads, self.kv.head_dim)
        return self.pages.setdefault(number, np.full(shape, np.nan)), position % PAGE_TOKENS


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x))."""
    return np.asarray((1 + np.tanh(x / 2)) / 2)


def capped(x: Floats, cap: float) -> Floats:
    """cap * tanh(x / cap), x itself where the cap is 0."""
    return cap * np.tanh(x / cap) if cap else x


def gated(activation: Activation, gate: Floats, up: Floats) -> Floats:
    """activation(gate) * up; gpt-oss's clamps both and adds 1 to up."""
    if activation == "clamped":
        gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0) + 1
        return gate * sigmoid(1.702 * gate) * up
    if activation == "gelu":
        inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
        return np.asarray(0.5 * gate * (1 + np.tanh(inner)) * up)
    return gate * sigmoid(gate) * up


def int8_rounded(x: Floats) -> Floats:
    """Each 32 neighbours of a row as multiples of 1/127 of the largest of them, to nearest, ties to even."""
    groups = x.reshape(len(x), -1, GROUP)
    scales = np.abs(groups).max(axis=2, keepdims=True) / 127
    rounded: Floats = np.rint(groups / np.where(scales > 0, scales, 1)) * scales
    return rounded.reshape(x.shape)
