"""gpt-oss: every other layer sees a window, each head has a sink, and all projections have biases."""

from typing import Any, ClassVar

from parkway.models.mixture import Mixture


class GptOss(Mixture):
    defaults: ClassVar[dict[str, Any]] = {
        "attention.sliding_window": 128,
        "rope.freq_base": 150000.0,
        "rope.scaling.truncate": False,
    }
    has_sinks = True
    needs_bias = True
    output_bias = "must"
    activation = "clamped"
    softmax = "chosen"
    window_period = 2
    ffn_norm = "post_attention_norm"
