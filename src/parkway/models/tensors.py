"""A checkpoint's tensors, checked against the shapes that a forward pass needs, and taken in by a backend."""

import re
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from parkway.errors import BadFile, Unsupported
from parkway.weights.checkpoint import Checkpoint, RawTensor
from parkway.weights.derived import all_of, rows_of

_NOT_NEEDED = re.compile(r"rope_(freqs|factors_(long|short))\.weight|.*(rotary_emb\.inv_freq|attn_rot_embd\.weight)")
"""Positions: read with the metadata, or repeated from it."""

Bias = Literal["none", "may", "must"]


class Pack(Protocol):
    """How a backend takes weights in."""

    def matrix(self, tensor: RawTensor, bias: RawTensor | None = None) -> Any: ...

    def vector(self, tensor: RawTensor) -> Any: ...

    def stack(self, experts: Sequence[RawTensor], biases: Sequence[RawTensor] | None = None) -> Any:
        """Matrices of one shape and type, one for each expert, and their biases: what `Experts` has."""

    def together(self, *matrices: Any) -> Any:
        """Matrices that multiply the same rows: what `Operations.linear` takes."""


class Tensors:
    """Names are GGUF's, without `.weight` where a matrix or vector is asked for."""

    def __init__(self, checkpoint: Checkpoint, pack: Pack) -> None:
        self.pack = pack
        self._checkpoint = checkpoint
        self._left = {name for name in checkpoint.tensors if not _NOT_NEEDED.fullmatch(name)}

    def has(self, name: str) -> bool:
        return name in self._checkpoint.tensors

    def rank(self, name: str) -> int:
        """How many dimensions a tensor has; 0 where there is none."""
        return len(self._checkpoint.tensors[name].shape) if self.has(name) else 0

    def matrix(self, name: str, rows: int, columns: int, *, bias: Bias = "none") -> Any:
        """`bias`: of a matrix that may or must have one, it is taken in with it."""
        biased = bias == "must" or (bias == "may" and self.has(f"{name}.bias"))
        added = self.raw(f"{name}.bias", rows) if biased else None
        return self.pack.matrix(self.raw(f"{name}.weight", rows, columns), added)

    def vector(self, name: str, width: int) -> Any:
        return self.pack.vector(self.raw(f"{name}.weight", width))

    def stack(self, name: str, count: int, rows: int, columns: int, *, biased: bool = False) -> Any:
        """Experts' matrices and, if `biased`, their biases: each of one tensor, or of one for each expert with its
        number behind the name."""
        biases = self._each(name, "bias", count, rows) if biased else None
        return self.pack.stack(self._each(name, "weight", count, rows, columns), biases)

    def halves(self, name: str, count: int, rows: int, columns: int) -> tuple[Any, Any]:
        """Experts' gates and ups, so many rows each, of one tensor that has both."""
        both = self._each(name, "weight", count, 2 * rows, columns)
        parts = slice(0, rows), slice(rows, 2 * rows)
        gate, up = (self.pack.stack([rows_of(expert, part) for expert in both]) for part in parts)
        return gate, up

    def raw(self, name: str, *shape: int) -> RawTensor:
        """A tensor as it is in the file. Raises BadFile naming it if it is missing or has another shape."""
        tensor, spelled = self._checkpoint.tensors.get(name), self._checkpoint.spelled(name)
        if tensor is None:
            raise BadFile(self._checkpoint.path, f"tensor {spelled} is missing")
        if tensor.shape != shape:
            raise BadFile(self._checkpoint.path, f"tensor {spelled} has shape {tensor.shape}, not {shape}")
        self._left.discard(name)
        return tensor

    def has_some(self, prefix: str) -> bool:
        """Whether there is a tensor whose name begins so."""
        return any(name.startswith(prefix) for name in self._checkpoint.tensors)

    def refuse_what_is_left(self) -> None:
        """Raises Unsupported for a tensor that was never asked for: without it, the answers would be wrong."""
        for name in sorted(self._left):
            what = "no bias is, except q, k, v's and their output's" if name.endswith(".bias") else "it has no place"
            spelled = self._checkpoint.spelled(name)
            raise Unsupported(f"{self._checkpoint.path}: tensor {spelled} is not supported: {what} in this family")

    def _each(self, name: str, kind: str, count: int, *shape: int) -> list[RawTensor]:
        if self.has(whole := f"{name}.{kind}"):
            return all_of(self.raw(whole, count, *shape))
        return [self.raw(f"{name}.{number}.{kind}", *shape) for number in range(count)]
