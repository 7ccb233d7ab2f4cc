"""Granite 3: embeddings, scores, sublayers and logits are multiplied by numbers of the file's own.

What sublayers are multiplied by, m, is taken out of them: this forward pass keeps x / m, to which a sublayer's result
is added as it is. A norm of x / m is one of x if its epsilon is divided by m².
"""

from dataclasses import replace

from parkway.models.config import Config, Scales, Sizes
from parkway.models.keys import Keys
from parkway.models.llama import Llama


class Granite(Llama):
    @classmethod
    def configured(cls, keys: Keys, sizes: Sizes) -> Config:
        config = super().configured(keys, sizes)
        return replace(config, epsilon=config.epsilon / keys.number("residual_scale", 1.0) ** 2)

    @classmethod
    def scales(cls, keys: Keys, sizes: Sizes) -> Scales:
        return Scales(
            embedding=keys.number("embedding_scale", 1.0) / keys.number("residual_scale", 1.0),
            logit_divisor=keys.number("logit_scale", 1.0),
        )
