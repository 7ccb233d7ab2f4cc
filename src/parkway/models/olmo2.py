"""OLMo 2: norms behind the sublayers in place of before them, and of all heads of q or k as one."""

from dataclasses import dataclass
from typing import Any

from parkway.backends import Attention, Operations
from parkway.models.config import Config, Sizes
from parkway.models.dense import Attending, Dense, Layer
from parkway.models.keys import Keys
from parkway.models.tensors import Tensors


@dataclass(frozen=True, slots=True)
class NormedAttending(Attending):
    q_norm: Any
    k_norm: Any


class Olmo2(Dense):
    attn_norm = ffn_norm = None
    attn_post_norm = "post_attention_norm"
    ffn_post_norm = "post_ffw_norm"

    @classmethod
    def configured(cls, keys: Keys, sizes: Sizes) -> Config:
        if keys.count_or_none("attention.sliding_window"):  # llama.cpp's files of both have one name
            raise keys.unsupported("OLMo 3 (olmo2 with windows) is not supported")
        return super().configured(keys, sizes)

    def mix(self, ops: Operations, layer: Layer, x: Any) -> Any:
        mixer, epsilon = layer.mixer, self.config.epsilon
        q, k, v = ops.linear(x, mixer.qkv)
        q, k = ops.rms_norm(q, mixer.q_norm, epsilon), ops.rms_norm(k, mixer.k_norm, epsilon)
        return ops.attention(ops.rope_and_write(q, k, v, mixer.how), mixer.how)

    def attending(self, tensors: Tensors, number: int, how: Attention) -> tuple[NormedAttending, Any]:
        plain, output = super().attending(tensors, number, how)
        c, at = self.config, f"blk.{number}"
        q_norm = tensors.vector(f"{at}.attn_q_norm", c.heads * c.kv.head_dim)
        k_norm = tensors.vector(f"{at}.attn_k_norm", c.kv.kv_heads * c.kv.head_dim)
        return NormedAttending(plain.qkv, plain.how, q_norm, k_norm), output
