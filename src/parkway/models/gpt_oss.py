"""gpt-oss: every other layer sees a window, each head has a sink, and all projections have biases."""

from dataclasses import replace
from typing import Any, ClassVar

from parkway.backends import Attention
from parkway.models.dense import Attending
from parkway.models.mixture import Mixture
from parkway.models.tensors import Tensors


class GptOss(Mixture):
    defaults: ClassVar[dict[str, Any]] = {
        "attention.sliding_window": 128,
        "rope.freq_base": 150000.0,
        "rope.scaling.truncate": False,
    }
    needs_bias = True
    output_bias = "must"
    activation = "clamped"
    softmax = "chosen"
    window_period = 2
    ffn_norm = "post_attention_norm"

    def attending(self, tensors: Tensors, number: int, how: Attention) -> tuple[Attending, Any]:
        attending, output = super().attending(tensors, number, how)
        sinks = tensors.vector(f"blk.{number}.attn_sinks", self.config.heads)
        return Attending(attending.qkv, replace(attending.how, sinks=sinks)), output
