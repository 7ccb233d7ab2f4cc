"""One safetensors file, memory-mapped. The library reads its header and checks it against the file's size."""

import math
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType
from safetensors import SafetensorError, safe_open

from parkway.errors import BadFile, Unsupported
from parkway.weights.checkpoint import RawTensor

_ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4}
_CODES = "U8"
"""Bytes that are parts of quantised blocks, and no numbers."""


def open_tensors(path: Path) -> dict[str, RawTensor]:
    """By name, views into the mapped file. Raises BadFile, or Unsupported naming a tensor of another type."""
    described = _described(path)
    mapped = np.memmap(path, np.uint8, "r")
    at = 8 + int.from_bytes(mapped[:8].tobytes(), "little")
    tensors = {}
    for name, shape, dtype in described:  # one after the other without gaps: the library has checked that
        if dtype not in (*_ITEM_BYTES, _CODES):
            raise Unsupported(f"{path}: tensor {name} has type {dtype}; supported are {', '.join(_ITEM_BYTES)}")
        size = math.prod(shape) * _ITEM_BYTES.get(dtype, 1)
        if not size:
            raise BadFile(path, f"tensor {name} has the impossible shape {shape}")
        raw = mapped[at : at + size].reshape(math.prod(shape[:-1]), -1)
        tensors[name] = RawTensor(name, shape, _kind(dtype), raw)
        at += size
    return tensors


def _kind(dtype: str) -> GGMLQuantizationType:
    return GGMLQuantizationType.I8 if dtype == _CODES else GGMLQuantizationType[dtype]


def _described(path: Path) -> list[tuple[str, tuple[int, ...], str]]:
    """(name, shape, type) of every tensor, in the order in which they lie in the file."""
    try:
        with path.open("rb"), safe_open(path, framework="np") as file:
            slices = [(name, file.get_slice(name)) for name in file.offset_keys()]
            return [(name, tuple(tensor.get_shape()), tensor.get_dtype()) for name, tensor in slices]
    except SafetensorError as error:
        raise BadFile(path, f"truncated or corrupt safetensors file: {error}") from error
    except OSError as error:
        raise BadFile(path, f"can't be read: {error.strerror or error}") from error
