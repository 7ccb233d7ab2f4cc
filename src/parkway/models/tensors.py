"""A checkpoint's tensors, checked against the shapes that a forward pass needs, and taken in by a backend."""

from typing import Any, Protocol

from parkway.errors import BadFile, Unsupported
from parkway.weights.checkpoint import Checkpoint, RawTensor


class Pack(Protocol):
    """How a backend takes weights in."""

    def matrix(self, tensor: RawTensor, bias: RawTensor | None = None) -> Any: ...

    def vector(self, tensor: RawTensor) -> Any: ...

    def together(self, *matrices: Any) -> Any:
        """Matrices that multiply the same rows: what `Operations.linear` takes."""


class Tensors:
    """Names are GGUF's, without `.weight` where a matrix or vector is asked for."""

    def __init__(self, checkpoint: Checkpoint, pack: Pack) -> None:
        self.pack = pack
        self._checkpoint = checkpoint
        self._biases = {name for name in checkpoint.tensors if name.endswith(".bias")}

    def has(self, name: str) -> bool:
        return name in self._checkpoint.tensors

    def matrix(self, name: str, rows: int, columns: int) -> Any:
        return self.pack.matrix(self.raw(f"{name}.weight", rows, columns))

    def vector(self, name: str, width: int) -> Any:
        return self.pack.vector(self.raw(f"{name}.weight", width))

    def raw(self, name: str, *shape: int) -> RawTensor:
        """A tensor as it is in the file. Raises BadFile naming it if it is missing or has another shape."""
        tensor, spelled = self._checkpoint.tensors.get(name), self._checkpoint.spelled(name)
        if tensor is None:
            raise BadFile(self._checkpoint.path, f"tensor {spelled} is missing")
        if tensor.shape != shape:
            raise BadFile(self._checkpoint.path, f"tensor {spelled} has shape {tensor.shape}, not {shape}")
        self._biases.discard(name)
        return tensor

    def refuse_what_is_left(self) -> None:
        """Raises Unsupported for a bias that was never asked for: without it, the answers would be wrong."""
        for name in sorted(self._biases):
            spelled = self._checkpoint.spelled(name)
            raise Unsupported(
                f"{self._checkpoint.path}: tensor {spelled} is not supported: no bias is, except q, k and v's"
            )
