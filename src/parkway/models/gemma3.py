"""Gemma 3: five layers of six see a window and turn by a base of their own, heads of q and k are normed."""

from dataclasses import replace
from typing import Any, ClassVar

from parkway.backends import Attention
from parkway.models.config import Sizes
from parkway.models.gemma2 import Gemma2
from parkway.models.keys import Keys
from parkway.models.ropes import local_rope


class Gemma3(Gemma2):
    defaults: ClassVar[dict[str, Any]] = {
        "attention.head_count": 8,
        "attention.head_count_kv": 4,
        "attention.key_length": 256,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": 4096,
        "context_length": 131072,
        "rope.freq_base": 1e6,
    }
    has_head_norms = True
    window_period = 6
    largest_layers = 62

    @classmethod
    def attends(cls, keys: Keys, sizes: Sizes) -> list[Attention]:
        nearby = local_rope(keys, sizes.head_dim, base=10000.0)
        return [replace(how, rope=nearby) if how.window else how for how in super().attends(keys, sizes)]
