"""Llama 2 and 3, Mistral, SmolLM2 and their like."""

from parkway.models.config import Config, Sizes
from parkway.models.dense import Dense
from parkway.models.keys import Keys


class Llama(Dense):
    rotary_pairs = "neighbours"

    @classmethod
    def configured(cls, keys: Keys, sizes: Sizes) -> Config:
        if keys.count_or_none("expert_count"):
            raise keys.unsupported("a Llama with experts (Mixtral) is not supported")
        return super().configured(keys, sizes)
