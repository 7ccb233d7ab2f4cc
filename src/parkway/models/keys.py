"""A model file's metadata, each value checked when it is asked for. Keys are GGUF's, without the architecture."""

import sys
from collections.abc import Mapping
from typing import Any

from parkway.errors import BadFile, Unsupported
from parkway.weights.checkpoint import Checkpoint

LEAST, MOST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""Of float32, which kernels compute with: what products of a few such numbers are, float64 holds."""


class Keys:
    """`defaults`: what a family takes where its files are silent. All raise BadFile naming the key."""

    def __init__(self, checkpoint: Checkpoint, defaults: Mapping[str, Any] = {}) -> None:
        self.checkpoint = checkpoint
        self.prefix = checkpoint.value("general.architecture")
        self._defaults = defaults

    def value(self, key: str, default: Any = None) -> Any:
        return self.checkpoint.value(f"{self.prefix}.{key}", self._defaults.get(key, default))

    def named(self, key: str) -> str:
        return f"metadata key {self.checkpoint.spelled(f'{self.prefix}.{key}')}"

    def need(self, key: str) -> Any:
        found = self.value(key)
        if found is None:
            raise self.bad(f"{self.named(key)} is missing")
        return found

    def count(self, key: str, default: int | None = None) -> int:
        """A positive whole number."""
        found = self.need(key) if default is None else self.value(key, default)
        if not isinstance(found, int) or not 0 < found < 2**53:
            raise self.bad(f"{self.named(key)} is {found!r}, not a positive number")
        return found

    def count_or_none(self, key: str) -> int:
        """The same, or 0."""
        return 0 if self.value(key) in (None, 0) else self.count(key)

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        found = self.need(key) if default is None else self.value(key, default)
        if not isinstance(found, int | float) or not 0 < found <= sys.float_info.max:
            raise self.bad(f"{self.named(key)} is {found!r}, not a positive number")
        if not LEAST <= found <= MOST:
            raise self.bad(f"{self.named(key)} is {found!r}, which 32 bits can't hold")
        return float(found)

    def number_or_none(self, key: str) -> float:
        """The same, or 0."""
        return 0.0 if self.value(key) in (None, 0) else self.number(key)

    def each(self, key: str, layers: int, default: list[Any]) -> list[Any]:
        """A value for each layer."""
        found = self.value(key, default)
        if not isinstance(found, list) or len(found) < layers:
            raise self.bad(f"{self.named(key)} is {found!r}, not a list for {layers} layers")
        return found[:layers]

    def rows(self, name: str) -> int:
        """Of a matrix."""
        tensor, spelled = self.checkpoint.tensors.get(name), self.checkpoint.spelled(name)
        if tensor is None:
            raise self.bad(f"tensor {spelled} is missing")
        if len(tensor.shape) != 2:
            raise self.bad(f"tensor {spelled} has shape {tensor.shape}, not rows and columns")
        return tensor.shape[0]

    def bad(self, why: str) -> BadFile:
        return BadFile(self.checkpoint.path, why)

    def unsupported(self, what: str) -> Unsupported:
        return Unsupported(f"{self.checkpoint.path}: {what}")
