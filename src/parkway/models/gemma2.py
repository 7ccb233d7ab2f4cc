"""Gemma 2: every other layer sees a window, scores and logits are capped, each sublayer is normed before and after."""

from typing import Any, ClassVar

from parkway.models.config import Scales, Sizes
from parkway.models.dense import Dense
from parkway.models.keys import Keys


class Gemma2(Dense):
    defaults: ClassVar[dict[str, Any]] = {
        "attention.sliding_window": 4096,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    activation = "gelu"
    attn_post_norm = "post_attention_norm"
    ffn_post_norm = "post_ffw_norm"
    window_period = 2
    largest_layers: ClassVar[int] = 46
    """Of the one whose scores are scaled by width / heads in place of the heads' width (27B)."""

    @classmethod
    def score_scale(cls, keys: Keys, sizes: Sizes) -> float:
        divided = sizes.width // sizes.heads if sizes.layers == cls.largest_layers else sizes.head_dim
        return keys.number("attention.scale", divided**-0.5)

    @classmethod
    def scales(cls, keys: Keys, sizes: Sizes) -> Scales:
        return Scales(embedding=sizes.width**0.5, logit_cap=keys.number_or_none("final_logit_softcapping"))
