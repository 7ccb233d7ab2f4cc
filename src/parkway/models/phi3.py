"""Phi-3 and Phi-4: q, k and v are one matrix in the file, and so are gate and up; long contexts by LongRoPE."""

from typing import Any

from parkway.models.dense import Dense, Gated
from parkway.models.tensors import Tensors
from parkway.weights.derived import rows_of


class Phi3(Dense):
    def qkv(self, tensors: Tensors, at: str) -> Any:
        c = self.config
        q, kv = c.heads * c.kv.head_dim, c.kv.kv_heads * c.kv.head_dim
        fused = tensors.raw(f"{at}.attn_qkv.weight", q + 2 * kv, c.width)
        parts = (slice(0, q), slice(q, q + kv), slice(q + kv, q + 2 * kv))
        return tensors.pack.together(*(tensors.pack.matrix(rows_of(fused, rows)) for rows in parts))

    def feed(self, tensors: Tensors, at: str) -> Any:
        c = self.config
        fused = tensors.raw(f"{at}.ffn_up.weight", 2 * c.ffn_width, c.width)
        gate, up = rows_of(fused, slice(0, c.ffn_width)), rows_of(fused, slice(c.ffn_width, 2 * c.ffn_width))
        down = tensors.matrix(f"{at}.ffn_down", c.width, c.ffn_width)
        return Gated(tensors.pack.matrix(gate), tensors.pack.matrix(up), down)
