"""A model's shape, read from its file's metadata and checked."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from parkway.backends import KvShape, Rope
from parkway.backends.quant import decode
from parkway.errors import BadFile, Unsupported
from parkway.weights.checkpoint import Checkpoint
from parkway.weights.rope import llama3_factors

_MOST_LANES = 65536
"""Of a head: more is damage, and would be allocated before it is seen."""


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
    vocabulary = keys.rows("token_embd.weight")
    if keys.count("vocab_size", vocabulary) != vocabulary:
        said = keys.count("vocab_size")
        raise BadFile(checkpoint.path, f"{keys.named('vocab_size')} is {said}, but the embedding has {vocabulary} rows")
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
        vocabulary=vocabulary,
        epsilon=keys.number("attention.layer_norm_rms_epsilon"),
        rope=_rope(checkpoint, keys, head_dim),
        ctx_train=keys.count("context_length"),
    )


def _head_dim(checkpoint: Checkpoint, keys: "_Keys", width: int, heads: int) -> int:
    if keys.value("attention.key_length", None) is None and width % heads:
        raise BadFile(checkpoint.path, f"a width of {width} can't be shared by {heads} heads")
    head_dim = keys.count("attention.key_length", width // heads)
    if head_dim > _MOST_LANES:
        raise BadFile(checkpoint.path, f"heads of {head_dim} lanes make no sense")
    return head_dim


def _rope(checkpoint: Checkpoint, keys: "_Keys", head_dim: int) -> Rope:
    dims = keys.count("rope.dimension_count", head_dim)
    if dims % 2 or dims > head_dim:
        raise BadFile(checkpoint.path, f"{dims} lanes of a head of {head_dim} can't be rotated in pairs")
    base = keys.number("rope.freq_base", 10000.0)
    factors = _factors(checkpoint, keys, dims, base)
    if factors.shape != (dims // 2,):
        raise BadFile(checkpoint.path, f"rope_freqs.weight has {factors.size} values, not {dims // 2}")
    return Rope(base, dims, "halves", factors)


def _factors(checkpoint: Checkpoint, keys: "_Keys", dims: int, base: float) -> npt.NDArray[np.float32]:
    """What the frequencies are divided by, float32 [dims / 2]."""
    scaling = keys.value("rope.scaling.type", "none")
    if scaling not in ("none", "linear", "llama3"):
        raise Unsupported(f"{checkpoint.path}: rope scaling {scaling!r} is not supported yet")
    if "rope_freqs.weight" in checkpoint.tensors:
        tensor = checkpoint.tensors["rope_freqs.weight"]
        factors = decode(tensor.name, tensor.type.name, tensor.raw).reshape(-1).copy()
    elif scaling == "llama3":
        factors = _llama3_factors(checkpoint, keys, dims, base)
    else:
        factors = np.ones(dims // 2, dtype=np.float32)
    return factors * np.float32(keys.number("rope.scaling.factor")) if scaling == "linear" else factors


def _llama3_factors(checkpoint: Checkpoint, keys: "_Keys", dims: int, base: float) -> npt.NDArray[np.float32]:
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_context_length")
    factor, low, high, context = (keys.number(f"rope.scaling.{name}") for name in names)
    if low >= high:
        named = keys.named("rope.scaling.low_freq_factor"), keys.named("rope.scaling.high_freq_factor")
        raise BadFile(checkpoint.path, f"{named[0]} is {low}, not below {named[1]}, {high}")
    return llama3_factors(base, dims, factor=factor, low=low, high=high, context=context)


class _Keys:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.prefix = checkpoint.value("general.architecture")

    def value(self, key: str, default: Any) -> Any:
        return self.checkpoint.value(f"{self.prefix}.{key}", default)

    def named(self, key: str) -> str:
        return f"metadata key {self.checkpoint.spelled(f'{self.prefix}.{key}')}"

    def need(self, key: str) -> Any:
        found = self.value(key, None)
        if found is None:
            raise BadFile(self.checkpoint.path, f"{self.named(key)} is missing")
        return found

    def count(self, key: str, default: int | None = None) -> int:
        found = self.need(key) if default is None else self.value(key, default)
        if not isinstance(found, int) or not 0 < found < 2**53:
            raise BadFile(self.checkpoint.path, f"{self.named(key)} is {found!r}, not a positive number")
        return found

    def number(self, key: str, default: float | None = None) -> float:
        found = self.need(key) if default is None else self.value(key, default)
        if not isinstance(found, int | float) or not 0 < found <= sys.float_info.max:
            raise BadFile(self.checkpoint.path, f"{self.named(key)} is {found!r}, not a positive number")
        return float(found)

    def rows(self, name: str) -> int:
        tensor, spelled = self.checkpoint.tensors.get(name), self.checkpoint.spelled(name)
        if tensor is None:
            raise BadFile(self.checkpoint.path, f"tensor {spelled} is missing")
        if len(tensor.shape) != 2:
            raise BadFile(self.checkpoint.path, f"tensor {spelled} has shape {tensor.shape}, not rows and columns")
        return tensor.shape[0]
