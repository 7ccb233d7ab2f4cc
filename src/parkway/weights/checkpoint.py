"""What a model file is to the rest of Parkway: values by key and tensors by name, whatever the format."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor as it lies in the file. `shape` is outermost first; `raw` is its bytes, uint8 [rows, row_bytes]."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    raw: npt.NDArray[np.uint8]


class Checkpoint(Protocol):
    @property
    def path(self) -> Path: ...

    @property
    def tensors(self) -> Mapping[str, RawTensor]: ...

    def value(self, key: str, default: Any = None) -> Any: ...
