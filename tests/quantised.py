"""Values as a file of some type has them: the library's own rounding, and plain ones for types that it only decodes."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import IQ4_NL, quantize

from parkway.backends.quant import block_columns

Float32s = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[Any]


def quantised(values: Float32s, kind: str) -> Bytes:
    """float32 [rows, columns] → uint8 [rows, row bytes]."""
    if kind in _PLAIN:
        return _PLAIN[kind](values.reshape(-1, block_columns(kind))).reshape(len(values), -1)
    made = np.ascontiguousarray(quantize(values, GGMLQuantizationType[kind]))
    return made.view(np.uint8).reshape(len(values), -1)


def _q2_k(values: Float32s) -> Bytes:
    """Sixteen groups of 16 with a scale and a minimum of 4 bits each, in multiples of d and of dmin."""
    d, dmin, scales, minima, q = _raised(values.reshape(-1, 16, 16), most=3, most_scale=15)
    return _joined(scales | minima << 4, _beside(q, 2, 128), d, dmin)


def _q3_k(values: Float32s) -> Bytes:
    """Sixteen groups of 16 with a signed scale of 6 bits each, in multiples of d; the high bits of q lie apart."""
    d, scales, q = _centred(values.reshape(-1, 16, 16), lowest=-4, least_scale=-32)
    kept = (scales + 32).astype(np.uint8)
    low, high = kept[:, :8] & 15 | (kept[:, 8:] & 15) << 4, _beside(kept >> 4, 2, 16)
    return _joined(_beside(q >> 2, 1, 256), _beside(q & 3, 2, 128), low, high, d)


def _q4_k(values: Float32s) -> Bytes:
    """Eight groups of 32 with a scale and a minimum of 6 bits each, in multiples of d and of dmin."""
    d, dmin, scales, minima, q = _raised(values.reshape(-1, 8, 32), most=15, most_scale=63)
    return _joined(d, dmin, _six_bits(scales, minima), _beside(q, 4, 64))


def _q5_k(values: Float32s) -> Bytes:
    """The same, with a fifth bit of q that lies apart."""
    d, dmin, scales, minima, q = _raised(values.reshape(-1, 8, 32), most=31, most_scale=63)
    return _joined(d, dmin, _six_bits(scales, minima), _beside(q >> 4, 1, 256), _beside(q & 15, 4, 64))


def _q6_k(values: Float32s) -> Bytes:
    """Sixteen groups of 16 with a signed scale of 8 bits each, in multiples of d."""
    d, scales, q = _centred(values.reshape(-1, 16, 16), lowest=-32, least_scale=-128)
    return _joined(_beside(q & 15, 4, 128), _beside(q >> 4, 2, 128), scales.astype(np.int8).view(np.uint8), d)


def _iq4_nl(values: Float32s) -> Bytes:
    """32 places in a table, in multiples of d."""
    d = (np.abs(values).max(axis=1, keepdims=True) / 127).astype(np.float16)
    return _joined(d, _beside(_places(values, d.astype(np.float32)), 4, 32))


def _iq4_xs(values: Float32s) -> Bytes:
    """Eight groups of 32 places in the table with a signed scale of 6 bits each, in multiples of d."""
    groups = values.reshape(-1, 8, 32)
    d, scales = _in_steps(np.abs(groups).max(axis=2) / 127, 31, -32)
    q = _places(groups, (d.astype(np.float32) * scales)[..., None])
    kept = (scales + 32).astype(np.uint8)
    low, high = kept[:, ::2] & 15 | (kept[:, 1::2] & 15) << 4, kept >> 4
    pairs = [high[:, i::4] << 2 * i for i in range(4)]
    return _joined(d, pairs[0] | pairs[1] | pairs[2] | pairs[3], low, _beside(q, 4, 32))


_PLAIN: Mapping[str, Callable[[Float32s], Bytes]] = {
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
}


def _raised(groups: Float32s, *, most: int, most_scale: int) -> tuple[Numbers, Numbers, Bytes, Bytes, Bytes]:
    """Groups [blocks, n, width] as d * scale * q - dmin * least: d, dmin, scales, minima, q [blocks, values]."""
    lowest = np.maximum(-groups.min(axis=2), 0)
    d, scales = _in_steps((groups.max(axis=2) + lowest) / most, most_scale)
    dmin, minima = _in_steps(lowest, most_scale)
    size = (d.astype(np.float32) * scales)[..., None]
    q = np.rint((groups + (dmin.astype(np.float32) * minima)[..., None]) / np.where(size, size, 1)).clip(0, most)
    return d, dmin, scales.astype(np.uint8), minima.astype(np.uint8), q.astype(np.uint8).reshape(len(groups), -1)


def _centred(groups: Float32s, *, lowest: int, least_scale: int) -> tuple[Numbers, Numbers, Bytes]:
    """Groups [blocks, n, width] as d * scale * (q + lowest), scales of both signs: d, scales, q [blocks, values]."""
    d, scales = _in_steps(np.abs(groups).max(axis=2) / -(lowest + 1), -least_scale - 1, least_scale)
    size = (d.astype(np.float32) * scales)[..., None]
    q = np.rint(groups / np.where(size, size, 1)).clip(lowest, -lowest - 1) - lowest
    return d, scales, q.astype(np.uint8).reshape(len(groups), -1)


def _in_steps(sizes: Float32s, most: int, least: int = 0) -> tuple[npt.NDArray[np.float16], Numbers]:
    """Sizes [blocks, groups] as whole multiples, `most` at most, of an fp16 step [blocks, 1]; where the least is
    negative, every other of them is."""
    step = (sizes.max(axis=1, keepdims=True) / most).astype(np.float16)
    multiples = np.rint(sizes / np.where(step, step, 1).astype(np.float32)).clip(0, most)
    if least < 0:
        multiples[:, ::2] *= -1
    return step, multiples


def _places(values: Float32s, sizes: Float32s) -> Bytes:
    """Where in the table of 16 the nearest to each value is, as [blocks, values]."""
    table = np.array(IQ4_NL.kvalues, np.float32)
    scaled = values / np.where(sizes, sizes, 1)
    nearest = np.abs(scaled[..., None] - table).argmin(axis=-1)
    return np.asarray(nearest.reshape(len(values), -1), np.uint8)


def _six_bits(scales: Bytes, minima: Bytes) -> Bytes:
    """Eight of both in 12 bytes."""
    first = [each[:, :4] | each[:, 4:] >> 4 << 6 for each in (scales, minima)]
    return _joined(*first, scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4)


def _beside(q: Numbers, bits: int, stretch: int) -> Bytes:
    """Numbers of so many bits [blocks, n]: of each `stretch` of them those that lie apart alike share a byte."""
    apart = q.reshape(len(q), -1, 8 // bits, stretch * bits // 8)
    shifted = apart << (np.arange(8 // bits, dtype=np.uint8) * bits)[:, None]
    return np.asarray(np.bitwise_or.reduce(shifted, axis=2).reshape(len(q), -1), np.uint8)


def _joined(*parts: Numbers) -> Bytes:
    return np.concatenate([part.view(np.uint8) for part in parts], axis=1)
