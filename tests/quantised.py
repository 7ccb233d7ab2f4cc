"""Values as a file of some type has them: the library's own rounding, and plain ones for types that it only decodes."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import quantize

Float32s = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


def quantised(values: Float32s, kind: str) -> Bytes:
    """float32 [rows, columns] → uint8 [rows, row bytes]."""
    if kind in ("Q4_K", "Q6_K"):
        blocks = (_q4_k if kind == "Q4_K" else _q6_k)(values.reshape(-1, 256))
        return blocks.reshape(len(values), -1)
    made = np.ascontiguousarray(quantize(values, GGMLQuantizationType[kind]))
    return made.view(np.uint8).reshape(len(values), -1)


def _q4_k(values: Float32s) -> Bytes:
    """Eight groups of 32 with a scale and a minimum of 6 bits each, in multiples of d and of dmin."""
    groups = values.reshape(-1, 8, 32)
    least = np.maximum(-groups.min(axis=2), 0)
    d, scales = _in_steps((groups.max(axis=2) + least) / 15, 63)
    dmin, minima = _in_steps(least, 63)
    size = (d.astype(np.float32) * scales)[..., None]
    q = np.rint((groups + (dmin.astype(np.float32) * minima)[..., None]) / np.where(size, size, 1)).clip(0, 15)
    pairs = q.astype(np.uint8).reshape(-1, 4, 2, 32)
    low, high = scales.astype(np.uint8), minima.astype(np.uint8)
    packed = np.concatenate(
        [
            low[:, :4] | low[:, 4:] >> 4 << 6,
            high[:, :4] | high[:, 4:] >> 4 << 6,
            low[:, 4:] & 15 | (high[:, 4:] & 15) << 4,
        ],
        axis=1,
    )
    nibbles = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(len(groups), -1)
    return np.concatenate([d.view(np.uint8), dmin.view(np.uint8), packed, nibbles], axis=1)


def _q6_k(values: Float32s) -> Bytes:
    """Sixteen groups of 16 with a scale of 8 bits each, in multiples of d."""
    groups = values.reshape(-1, 16, 16)
    d, scales = _in_steps(np.abs(groups).max(axis=2) / 31, 127)
    size = (d.astype(np.float32) * scales)[..., None]
    q = (np.rint(groups / np.where(size, size, 1)).clip(-32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (q[:, :, :2] & 15 | (q[:, :, 2:] & 15) << 4).reshape(len(groups), -1)
    high = sum((q[:, :, i] >> 4) << 2 * i for i in range(4))
    parts = [low, np.asarray(high).reshape(len(groups), -1), scales.astype(np.int8).view(np.uint8), d.view(np.uint8)]
    return np.concatenate(parts, axis=1).astype(np.uint8)


def _in_steps(sizes: Float32s, most: int) -> tuple[npt.NDArray[np.float16], npt.NDArray[Any]]:
    """Sizes [blocks, groups] as whole multiples, `most` at most, of an fp16 step [blocks, 1]."""
    step = (sizes.max(axis=1, keepdims=True) / most).astype(np.float16)
    return step, np.rint(sizes / np.where(step, step, 1).astype(np.float32)).clip(0, most)
