"""Models with layers that see a window, small enough to make in a test, on any backend: a window, all, perhaps a delta
net, a window."""

from dataclasses import replace
from typing import Any

from parkway.backends import Attention, KvShape
from tests.hybrids import WIDTH, TinyHybrid

WINDOW = 70
"""More than a page, so that two are kept at a page boundary."""
FAR = Attention(layer=1, heads=2, scale=0.2, rope=None)


class TinyWindows(TinyHybrid):
    """Random weights that `pack` takes in; the part of a family that runners use. `remembers`: with a delta net."""

    def __init__(self, pack: Any, *, window: int = WINDOW, remembers: bool = False) -> None:
        super().__init__(pack)
        states = replace(self.config.states, layers=1) if remembers and self.config.states else None
        near = [replace(FAR, layer=layer, window=window) for layer in (0, 2)]
        self.config = replace(
            self.config,
            kv=KvShape(3, 1, 32),
            attention=(near[0], FAR, near[1]),
            kinds=("attention",) * 3,
            states=states,
        )
        self._attending = [
            (how, pack.together(*(self._matrix(rows) for rows in (64, 32, 32))), self._matrix(WIDTH, 64))
            for how in self.config.attention
        ]

    def forward(self, ops: Any) -> Any:
        x = ops.embed(self._table)
        for how, qkv, out in self._attending:
            if how is self.config.attention[-1] and self.config.states:
                x = self._remember(ops, x, *self._nets[0])
            q, k, v = ops.linear(ops.rms_norm(x, self._norm, 1e-6), qkv)
            x = ops.linear_add(ops.attention(ops.rope_and_write(q, k, v, how), how), out, x)
        return ops.logits(ops.take(ops.rms_norm(x, self._norm, 1e-6)), self._table)
