"""One step's rows on the device: a single run of 32-bit words that the host fills, cut into named parts.

Parts lie one behind the other for the row counts of a bucket, so that a step goes to the device in one piece however
small it is. Addresses do not change, as captured graphs need.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each part begins, in words, and its shape; `words` is the length of all."""

    offsets: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    words: int

    @classmethod
    def of(cls, shapes: Mapping[str, tuple[int, ...]]) -> "Layout":
        """Parts one behind the other, each at a multiple of 64 bytes."""
        offsets, words = {}, 0
        for name, shape in shapes.items():
            offsets[name] = words
            words += -(-math.prod(shape) // 16) * 16
        return cls(offsets, shapes, words)

    def part(self, words: torch.Tensor, name: str) -> torch.Tensor:
        """A part as a view of `words` int32."""
        shape = self.shapes[name]
        return words[self.offsets[name] :][: math.prod(shape)].view(shape)
