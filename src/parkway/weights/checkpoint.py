"""What a model file is to the rest of Parkway: values by key and tensors by name, whatever the format."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType

from parkway.fingerprint import fingerprint


@dataclass(frozen=True)
class RawTensor:
    """A tensor as it lies in the file, and its name there. `shape` is outermost first; `raw` is its bytes, uint8
    [rows, row_bytes], not to be written to."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    raw: npt.NDArray[np.uint8]


class MadeTensor(RawTensor):
    """A tensor whose bytes are made each time they are read, and not kept."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        kind: GGMLQuantizationType,
        make: Callable[[], npt.NDArray[np.uint8]],
    ) -> None:
        for field, value in (("name", name), ("shape", shape), ("type", kind), ("make", make)):
            object.__setattr__(self, field, value)

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        made: npt.NDArray[np.uint8] = self.__dict__["make"]()
        return made


def identity_of(tensors: Iterable[RawTensor]) -> str:
    """Each tensor's name, type and shape, and its first and last row: reading all would cost the start seconds."""
    return fingerprint(
        *(
            f"{tensor.name} {tensor.type.name} {tensor.shape} {tensor.raw[[0, -1]].tobytes().hex()}"
            for tensor in tensors
        )
    )


class Checkpoint(Protocol):
    """Keys and names of tensors are GGUF's, whatever the format."""

    @property
    def path(self) -> Path: ...

    @property
    def name(self) -> str:
        """What the model is called where nobody gives it another name."""

    @property
    def identity(self) -> str:
        """Names the weights, without a look at all of them."""

    @property
    def tensors(self) -> Mapping[str, RawTensor]: ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Everything that the text side needs, by key."""

    def value(self, key: str, default: Any = None) -> Any: ...

    def spelled(self, key: str) -> str:
        """How the file itself calls a key or a tensor: what a person looks for."""
