"""A hybrid model small enough to make in a test, on any backend: a delta net, attention, a delta net."""

from typing import Any

import numpy as np

from parkway.backends import Attention, DeltaNet, KvShape, StateShape
from parkway.models.config import Config
from tests.backends.rig import raw_tensor

WIDTH, VOCABULARY = 64, 96
STATES = StateShape(layers=2, k_heads=1, v_heads=2, k_dim=16, v_dim=32, taps=4)
ATTENTION = Attention(layer=0, heads=2, scale=0.2, rope=None)


class TinyHybrid:
    """Random weights that `pack` takes in; the part of a family that runners use."""

    def __init__(self, pack: Any) -> None:
        self._pack = pack
        self.config = Config(
            family="tiny",
            layers=3,
            width=WIDTH,
            ffn_width=0,
            heads=2,
            kv=KvShape(1, 1, 32),
            vocabulary=VOCABULARY,
            epsilon=1e-6,
            ctx_train=512,
            attention=(ATTENTION,),
            kinds=("delta", "attention", "delta"),
            states=STATES,
        )
        self._random = np.random.default_rng(5)
        self._table = self._matrix(VOCABULARY, WIDTH, by=2)
        self._nets = [self._net(layer) for layer in (0, 1)]
        self._qkv = pack.together(*(self._matrix(rows) for rows in (64, 32, 32)))
        self._out = self._matrix(WIDTH, 64)
        self._norm = self._vector(np.ones(WIDTH))

    def forward(self, ops: Any) -> Any:
        x = ops.embed(self._table)
        x = self._remember(ops, x, *self._nets[0])
        q, k, v = ops.linear(ops.rms_norm(x, self._norm, 1e-6), self._qkv)
        attended = ops.attention(ops.rope_and_write(q, k, v, ATTENTION), ATTENTION)
        x = ops.linear_add(attended, self._out, x)
        x = self._remember(ops, x, *self._nets[1])
        return ops.logits(ops.take(ops.rms_norm(x, self._norm, 1e-6)), self._table)

    def _remember(self, ops: Any, x: Any, projections: Any, net: DeltaNet, norm: Any, out: Any) -> Any:
        q, k, v, z, a, b = ops.linear(ops.rms_norm(x, self._norm, 1e-6), projections)
        return ops.linear_add(ops.gated_norm(ops.delta_net(q, k, v, a, b, net), z, norm, 1e-6), out, x)

    def _net(self, layer: int) -> tuple[Any, DeltaNet, Any, Any]:
        taps, bias = (self._vector(self._random.standard_normal(size)) for size in (96 * 4, 2))
        net = DeltaNet(layer, taps, self._vector(np.array([-0.05, -0.5])), bias, 1e-6)
        projections = self._pack.together(*(self._matrix(rows) for rows in (16, 16, 64, 64, 2, 2)))
        return projections, net, self._vector(np.ones(32)), self._matrix(WIDTH, 64)

    def _matrix(self, rows: int, columns: int = WIDTH, by: float = 1) -> Any:
        values = self._random.standard_normal((rows, columns), np.float32) * np.float32(by / np.sqrt(columns))
        return self._pack.matrix(raw_tensor("drawn", "BF16", values))

    def _vector(self, values: Any) -> Any:
        return self._pack.vector(raw_tensor("drawn", "F32", values.astype(np.float32)[None]))
