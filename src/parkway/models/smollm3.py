"""SmolLM3: every fourth layer is not told positions."""

from dataclasses import replace
from typing import Any, ClassVar

from parkway.backends import Attention
from parkway.models.config import Sizes
from parkway.models.keys import Keys
from parkway.models.llama import Llama


class SmolLM3(Llama):
    defaults: ClassVar[dict[str, Any]] = {"rope.freq_base": 2e6}

    @classmethod
    def attends(cls, keys: Keys, sizes: Sizes) -> list[Attention]:
        turned = keys.each("rope_layers", sizes.layers, [(layer + 1) % 4 for layer in range(sizes.layers)])
        alike = super().attends(keys, sizes)
        return [how if turns else replace(how, rope=None) for how, turns in zip(alike, turned, strict=True)]
