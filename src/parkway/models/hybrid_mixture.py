"""Delta nets, experts, and an expert that all rows go through: what Qwen3-Next and Qwen3.5 with experts share."""

from dataclasses import replace

from parkway.models.config import Config, Sizes
from parkway.models.dense import Gated
from parkway.models.hybrid import Hybrid
from parkway.models.keys import Keys
from parkway.models.mixture import Mixture, Shared
from parkway.models.tensors import Tensors
from parkway.weights.derived import shaped


class HybridMixture(Mixture, Hybrid):
    @classmethod
    def configured(cls, keys: Keys, sizes: Sizes) -> Config:
        shared_width = keys.count("expert_shared_feed_forward_length")
        config = super(Mixture, cls).configured(keys, sizes)
        return replace(config, experts=cls.expert_sizes(keys), ffn_width=shared_width)

    def shared(self, tensors: Tensors, at: str) -> Shared:
        c, together = self.config, tensors.pack.together
        feed = Gated(
            gate=tensors.matrix(f"{at}.ffn_gate_shexp", c.ffn_width, c.width),
            up=tensors.matrix(f"{at}.ffn_up_shexp", c.ffn_width, c.width),
            down=together(tensors.matrix(f"{at}.ffn_down_shexp", c.width, c.ffn_width)),
        )
        name = f"{at}.ffn_gate_inp_shexp.weight"
        flat = tensors.raw(name, c.width) if tensors.rank(name) == 1 else tensors.raw(name, 1, c.width)
        return Shared(feed, together(tensors.pack.matrix(shaped(flat, 1, c.width))))
