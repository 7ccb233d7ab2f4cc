"""Every operation in plain NumPy float64, eagerly, a step at a time: the specification of what the kernels compute.

Knows nothing of tiles, threads or splits. Memory that nobody wrote is NaN, so that whoever reads it shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from parkway.backends import HeadNorms, KvShape, Rope
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

    heads: int
    kv: KvShape
    rope: Rope
    activations: str = "f32"
    step: ReferenceStep = field(default_factory=lambda: ReferenceStep((), (), (), ()))
    pages: dict[int, Floats] = field(default_factory=dict)
    """By page number: float64 [layers, (keys, values), PAGE_TOKENS, kv_heads, head_dim]."""

    def embed(self, table: ReferenceMatrix) -> Floats:
        return np.take(table.values, self.step.tokens, axis=0)

    def rms_norm(self, x: Floats, weight: Floats, epsilon: float) -> Floats:
        normed: Floats = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight
        return normed

    def linear(self, x: Floats, weights: Sequence[ReferenceMatrix]) -> tuple[Floats, ...]:
        return tuple(self._seen_by(weight, x) @ weight.values.T + weight.bias for weight in weights)

    def linear_add(self, x: Floats, weight: ReferenceMatrix, residual: Floats) -> Floats:
        return residual + self.linear(x, [weight])[0]

    def gated(self, x: Floats, gate: ReferenceMatrix, up: ReferenceMatrix) -> Floats:
        opened, values = self.linear(x, [gate, up])
        gated: Floats = opened / (1 + np.exp(-opened)) * values
        return gated

    def rope_and_write(self, q: Floats, k: Floats, v: Floats, layer: int, norms: HeadNorms | None = None) -> Floats:
        queries, keys = self._by_head(q), self._by_head(k)
        if norms:
            queries = self.rms_norm(queries, norms.q, norms.epsilon)
            keys = self.rms_norm(keys, norms.k, norms.epsilon)
        keys = self._turned(keys)
        for r, (keys_of_row, values_of_row) in enumerate(zip(keys, self._by_head(v), strict=True)):
            page, at = self._place(r, self.step.positions[r])
            page[layer, :, at] = keys_of_row, values_of_row
        return self._turned(queries).reshape(q.shape)

    def attention(self, q: Floats, layer: int) -> Floats:
        rows = [self._attend(r, queries, layer) for r, queries in enumerate(self._by_head(q))]
        return np.asarray(rows, np.float64).reshape(q.shape)

    def take(self, x: Floats) -> Floats:
        return np.take(x, self.step.logit_rows, axis=0)

    def logits(self, x: Floats, head: ReferenceMatrix) -> Floats:
        return self.linear(x, [head])[0]

    def _seen_by(self, weight: ReferenceMatrix, x: Floats) -> Floats:
        return int8_rounded(x) if self.activations == "int8" and weight.type in QUANTISED else x

    def _by_head(self, x: Floats) -> Floats:
        return x.reshape(len(x), -1, self.kv.head_dim)

    def _turned(self, x: Floats) -> Floats:
        """Every lane pair (a, b) of x [rows, heads, head_dim] turned by its row's position."""
        half = self.rope.dims // 2
        exponents = np.arange(half, dtype=np.float64) * -2 / self.rope.dims
        inverse = self.rope.base**exponents / (1 if self.rope.factors is None else self.rope.factors)
        angles = np.outer(self.step.positions, inverse)[:, None, :]
        neighbours = self.rope.pairs == "neighbours"
        first = slice(0, self.rope.dims, 2) if neighbours else slice(0, half)
        second = slice(1, self.rope.dims, 2) if neighbours else slice(half, self.rope.dims)
        turned = x.copy()
        turned[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
        turned[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
        return turned

    def _attend(self, row: int, queries: Floats, layer: int) -> Floats:
        """One row's queries [heads, head_dim] over its chat's positions up to its own."""
        seen = self.step.positions[row] + 1
        used = [self._place(row, start)[0][layer] for start in range(0, seen, PAGE_TOKENS)]
        keys, values = np.concatenate(used, axis=1)[:, :seen].repeat(self.heads // self.kv.kv_heads, axis=2)
        scores = np.einsum("hd,phd->hp", queries, keys) / np.sqrt(self.kv.head_dim)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        attended: Floats = np.einsum("hp,phd->hd", weights / weights.sum(axis=1, keepdims=True), values)
        return attended

    def _place(self, row: int, position: int) -> tuple[Floats, int]:
        """The page of a position of the row's chat, and where in it."""
        number = self.step.tables[row][position // PAGE_TOKENS]
        shape = (self.kv.layers, 2, PAGE_TOKENS, self.kv.kv_heads, self.kv.head_dim)
        return self.pages.setdefault(number, np.full(shape, np.nan)), position % PAGE_TOKENS


def int8_rounded(x: Floats) -> Floats:
    """Each 32 neighbours of a row as multiples of 1/127 of the largest of them, to nearest, ties to even."""
    groups = x.reshape(len(x), -1, GROUP)
    scales = np.abs(groups).max(axis=2, keepdims=True) / 127
    rounded: Floats = np.rint(groups / np.where(scales > 0, scales, 1)) * scales
    return rounded.reshape(x.shape)
