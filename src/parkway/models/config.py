"""A model's shape, read from its file's metadata and checked."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from parkway.backends import KvShape, Rope
from parkway.backends.quant import decode
from parkway.errors import BadFile, Unsupported
from parkway.weights.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class DenseConfig:
    """Shape of a dense transformer. `ctx_train` is the context that it was trained on."""

    layers: int
    width: int
    ffn_width: int
    heads: int
    kv: KvShape
    vocabulary: int
    epsilon: float
    rope: Rope
    ctx_train: int


def dense_config(checkpoint: Checkpoint) -> DenseConfig:
    """Reads `<architecture>.…` keys. Raises BadFile naming the key that is missing or makes no sense."""
    keys = _Keys(checkpoint)
    heads, width = keys.count("attention.head_count"), keys.count("embedding_length")
    head_dim = _head_dim(checkpoint, keys, width, heads)
    if keys.count("attention.value_length", head_dim) != head_dim:
        raise Unsupported(f"{checkpoint.path}: keys and values of different head widths")
    kv = KvShape(keys.count("block_count"), keys.count("attention.head_count_kv", heads), head_dim)
    if heads % kv.kv_heads:
        raise BadFile(checkpoint.path, f"{heads} heads can't share {kv.kv_heads} KV heads")
    return DenseConfig(
        layers=kv.layers,
        width=width,
        ffn_width=keys.count("feed_forward_length"),
        heads=heads,
        kv=kv,
        vocabulary=keys.rows("token_embd.weight"),
        epsilon=keys.number("attention.layer_norm_rms_epsilon"),
        rope=_rope(checkpoint, keys, head_dim),
        ctx_train=keys.count("context_length"),
    )


def _head_dim(checkpoint: Checkpoint, keys: "_Keys", width: int, heads: int) -> int:
    if keys.value("attention.key_length", None) is None and width % heads:
        raise BadFile(checkpoint.path, f"a width of {width} can't be shared by {heads} heads")
    return keys.count("attention.key_length", width // heads)


def _rope(checkpoint: Checkpoint, keys: "_Keys", head_dim: int) -> Rope:
    scaling = keys.value("rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise Unsupported(f"{checkpoint.path}: rope scaling {scaling!r} is not supported yet")
    dims = keys.count("rope.dimension_count", head_dim)
    if dims % 2 or dims > head_dim:
        raise BadFile(checkpoint.path, f"{dims} lanes of a head of {head_dim} can't be rotated in pairs")
    factors = np.ones(dims // 2, dtype=np.float32)
    if "rope_freqs.weight" in checkpoint.tensors:
        tensor = checkpoint.tensors["rope_freqs.weight"]
        factors = decode(tensor.name, tensor.type.name, tensor.raw).reshape(-1).copy()
    if scaling == "linear":
        factors = factors * np.float32(keys.number("rope.scaling.factor"))
    if factors.shape != (dims // 2,):
        raise BadFile(checkpoint.path, f"rope_freqs.weight has {factors.size} values, not {dims // 2}")
    return Rope(keys.number("rope.freq_base", 10000.0), dims, "neighbours", factors)


class _Keys:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.prefix = checkpoint.value("general.architecture")

    def value(self, key: str, default: Any) -> Any:
        return self.checkpoint.value(f"{self.prefix}.{key}", default)

    def need(self, key: str) -> Any:
        found = self.value(key, None)
        if found is None:
            raise BadFile(self.checkpoint.path, f"metadata key {self.prefix}.{key} is missing")
        return found

    def count(self, key: str, default: int | None = None) -> int:
        found = self.need(key) if default is None else self.value(key, default)
        if not isinstance(found, int) or found <= 0:
            raise BadFile(self.checkpoint.path, f"metadata key {self.prefix}.{key} is {found!r}, not a positive number")
        return found

    def number(self, key: str, default: float | None = None) -> float:
        found = self.need(key) if default is None else self.value(key, default)
        if not isinstance(found, int | float) or not 0 < found < math.inf:
            raise BadFile(self.checkpoint.path, f"metadata key {self.prefix}.{key} is {found!r}, not a positive number")
        return float(found)

    def rows(self, tensor: str) -> int:
        if tensor not in self.checkpoint.tensors:
            raise BadFile(self.checkpoint.path, f"tensor {tensor} is missing")
        return self.checkpoint.tensors[tensor].shape[0]
