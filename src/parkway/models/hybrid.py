"""Decoders in which most layers are gated delta nets, whose state doesn't grow, and every few attend to all."""

import logging
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from parkway.backends import Attention, DeltaNet, Operations, StateShape
from parkway.models.config import Config, Kind, Sizes, config_of
from parkway.models.dense import Attending, Dense, Layer, PredictionHead
from parkway.models.keys import Keys
from parkway.models.ropes import rope_of
from parkway.models.tensors import Tensors
from parkway.weights.checkpoint import RawTensor
from parkway.weights.derived import columns_of, dealt, rows_of

logger = logging.getLogger(__name__)

_TINY = 1e-6
"""Added to a head's sum of squares before it is divided by its length."""


@dataclass(frozen=True, slots=True)
class Remembering:
    """`projections`: q, k, v, z, a and b, packed together."""

    projections: Any
    how: DeltaNet
    norm: Any


class Hybrid(Dense):
    """The families of Qwen3-Next and Qwen3.5. Attention has a gate for each of its values."""

    defaults: ClassVar[dict[str, Any]] = {"full_attention_interval": 4}
    has_head_norms = True
    ffn_norm = "post_attention_norm"
    tiled: ClassVar[bool] = False
    """Whether a GGUF file's heads of v go round the heads of q and k, in place of being neighbours."""

    @classmethod
    def configured(cls, keys: Keys, sizes: Sizes) -> Config:
        kinds = layer_kinds(keys, sizes)
        rope = rope_of(keys, sizes.head_dim)
        full = range(kinds.count("attention"))
        attention = [Attention(layer, sizes.heads, sizes.head_dim**-0.5, rope) for layer in full]
        states = state_shape(keys, kinds.count("delta"))
        return config_of(keys, sizes, attention, kinds, states)

    def mix(self, ops: Operations, layer: Layer, x: Any) -> Any:
        normed = self.normed(ops, x, layer.attn_norm)
        if isinstance(layer.mixer, Attending):
            q, k, v, gate = ops.linear(normed, layer.mixer.qkv)
            attended = ops.attention(ops.rope_and_write(q, k, v, layer.mixer.how), layer.mixer.how)
            return ops.sigmoid_gate(attended, gate)
        q, k, v, z, a, b = ops.linear(normed, layer.mixer.projections)
        remembered = ops.delta_net(q, k, v, a, b, layer.mixer.how)
        return ops.gated_norm(remembered, z, layer.mixer.norm, self.config.epsilon)

    def mixer(self, tensors: Tensors, number: int) -> tuple[Any, Any]:
        if number == self.config.layers:  # the prediction head's
            how = replace(self.config.attention[-1], layer=self.config.kv.layers)
            return self.attending(tensors, number, how)
        before = self.config.kinds[:number]
        if self.config.kinds[number] == "attention":
            return self.attending(tensors, number, self.config.attention[before.count("attention")])
        states = self.config.states
        assert states
        inner = states.v_heads * states.v_dim
        remembering = self.remembering(tensors, f"blk.{number}", before.count("delta"), states)
        return remembering, tensors.matrix(f"blk.{number}.ssm_out", self.config.width, inner)

    def qkv(self, tensors: Tensors, at: str) -> Any:
        """With the gate, whose rows lie among q's: a head's q, then its gate."""
        c = self.config
        head_dim, kv = c.kv.head_dim, c.kv.kv_heads * c.kv.head_dim
        both = tensors.raw(f"{at}.attn_q.weight", 2 * c.heads * head_dim, c.width)
        q, gate = (tensors.pack.matrix(part) for part in dealt(both, c.heads, head_dim, head_dim))
        k, v = (tensors.matrix(f"{at}.{name}", kv, c.width) for name in ("attn_k", "attn_v"))
        return tensors.pack.together(q, k, v, gate)

    def remembering(self, tensors: Tensors, at: str, layer: int, states: StateShape) -> Remembering:
        qk, inner = states.k_heads * states.k_dim, states.v_heads * states.v_dim
        how = DeltaNet(
            layer=layer,
            convolution=tensors.pack.vector(tensors.raw(f"{at}.ssm_conv1d.weight", 2 * qk + inner, states.taps)),
            decay=tensors.pack.vector(tensors.raw(f"{at}.ssm_a", states.v_heads)),
            bias=tensors.pack.vector(tensors.raw(f"{at}.ssm_dt.bias", states.v_heads)),
            epsilon=_TINY,
            tiled=self.tiled and self._of_converter,
        )
        matrices = (tensors.pack.matrix(part) for part in self.projections(tensors, at, states))
        return Remembering(tensors.pack.together(*matrices), how, tensors.vector(f"{at}.ssm_norm", states.v_dim))

    def projections(self, tensors: Tensors, at: str, states: StateShape) -> list[RawTensor]:
        """q, k, v, z, a and b."""
        width, inner = self.config.width, states.v_heads * states.v_dim
        z = tensors.raw(f"{at}.attn_gate.weight", inner, width)
        a, b = (tensors.raw(f"{at}.{name}.weight", states.v_heads, width) for name in ("ssm_alpha", "ssm_beta"))
        return [*split_qkv(tensors, at, states, width), z, a, b]

    def predicting(self, keys: Keys, tensors: Tensors) -> PredictionHead | None:
        """Its layer is the one behind the others, and attends."""
        layers, number = keys.count_or_none("nextn_predict_layers"), self.config.layers
        if not (layers and tensors.has_some(f"blk.{number}.")):
            return None
        if layers > 1:
            raise keys.unsupported(f"a prediction head of {layers} layers is not supported, only of one")
        logger.info("%s: the prediction head is kept for speculation; nothing uses it yet", keys.checkpoint.path)
        return self._head_around(tensors, f"blk.{number}.nextn", self.layer(tensors, number))

    def _head_around(self, tensors: Tensors, at: str, layer: Layer) -> PredictionHead:
        width, rows = self.config.width, self.config.vocabulary
        both = tensors.raw(f"{at}.eh_proj.weight", width, 2 * width)
        embedding, hidden = (tensors.pack.matrix(columns_of(both, start, width)) for start in (0, width))
        named = [name for name in ("embed_tokens", "shared_head_head") if tensors.has(f"{at}.{name}.weight")]
        own = {name: tensors.matrix(f"{at}.{name}", rows, width) for name in named}
        return PredictionHead(
            embedding_norm=tensors.vector(f"{at}.enorm", width),
            hidden_norm=tensors.vector(f"{at}.hnorm", width),
            from_embedding=tensors.pack.together(embedding),
            from_hidden=hidden,
            layer=layer,
            norm=tensors.vector(f"{at}.shared_head_norm", width),
            embedding=own.get("embed_tokens", self.embedding),
            output=own.get("shared_head_head", self.head),
        )


def split_qkv(tensors: Tensors, at: str, states: StateShape, width: int) -> list[RawTensor]:
    qk, inner = states.k_heads * states.k_dim, states.v_heads * states.v_dim
    fused = tensors.raw(f"{at}.attn_qkv.weight", 2 * qk + inner, width)
    return [rows_of(fused, rows) for rows in (slice(0, qk), slice(qk, 2 * qk), slice(2 * qk, 2 * qk + inner))]


def layer_kinds(keys: Keys, sizes: Sizes) -> list[Kind]:
    """As the file lists them, or the last of every few attends."""
    every = keys.count("full_attention_interval")
    usual = ["linear_attention" if (layer + 1) % every else "full_attention" for layer in range(sizes.layers)]
    listed = keys.each("layer_types", sizes.layers, usual)
    kinds: list[Kind] = ["attention" if kind == "full_attention" else "delta" for kind in listed]
    if kinds.count("attention") in (0, len(kinds)):
        raise keys.unsupported("a hybrid model whose layers are all of one kind")
    return kinds


def state_shape(keys: Keys, layers: int) -> StateShape:
    v_heads, inner = keys.count("ssm.time_step_rank"), keys.count("ssm.inner_size")
    k_heads = keys.count("ssm.group_count")
    if v_heads % k_heads or inner % v_heads:
        raise keys.bad(f"{v_heads} heads of v can't share {k_heads} heads of k, or {inner} values")
    return StateShape(
        layers, k_heads, v_heads, keys.count("ssm.state_size"), inner // v_heads, keys.count("ssm.conv_kernel")
    )
