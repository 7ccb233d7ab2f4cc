"""Shapes of well-known models, by name: what random weights are made in."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """A dense transformer's shape. `llama3`: factor, low and high frequency factor, original context."""

    architecture: str
    layers: int
    width: int
    ffn_width: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    rope_base: float
    epsilon: float
    ctx_train: int
    tied: bool = False
    llama3: tuple[float, float, float, float] | None = None

    @property
    def values(self) -> dict[str, Any]:
        """GGUF's keys."""
        said: dict[str, Any] = {
            "block_count": self.layers,
            "context_length": self.ctx_train,
            "embedding_length": self.width,
            "feed_forward_length": self.ffn_width,
            "vocab_size": self.vocabulary,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": self.epsilon,
            "rope.dimension_count": self.head_dim,
            "rope.freq_base": self.rope_base,
        }
        if self.llama3:
            names = ("factor", "low_freq_factor", "high_freq_factor", "original_context_length")
            said |= {f"rope.scaling.{name}": value for name, value in zip(names, self.llama3, strict=True)}
            said["rope.scaling.type"] = "llama3"
        return {"general.architecture": self.architecture} | {
            f"{self.architecture}.{key}": value for key, value in said.items()
        }

    @property
    def matrices(self) -> Iterator[tuple[str, int, int]]:
        """(name, outputs, inputs), the embedding first."""
        q_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "token_embd.weight", self.vocabulary, self.width
        for layer in range(self.layers):
            yield f"blk.{layer}.attn_q.weight", q_width, self.width
            yield f"blk.{layer}.attn_k.weight", kv_width, self.width
            yield f"blk.{layer}.attn_v.weight", kv_width, self.width
            yield f"blk.{layer}.attn_output.weight", self.width, q_width
            yield f"blk.{layer}.ffn_gate.weight", self.ffn_width, self.width
            yield f"blk.{layer}.ffn_up.weight", self.ffn_width, self.width
            yield f"blk.{layer}.ffn_down.weight", self.width, self.ffn_width
        if not self.tied:
            yield "output.weight", self.vocabulary, self.width

    @property
    def norms(self) -> Iterator[tuple[str, int]]:
        """(name, values) of the weights of RMS norms."""
        for layer in range(self.layers):
            yield f"blk.{layer}.attn_norm.weight", self.width
            yield f"blk.{layer}.ffn_norm.weight", self.width
            if self.architecture == "qwen3":
                yield f"blk.{layer}.attn_q_norm.weight", self.head_dim
                yield f"blk.{layer}.attn_k_norm.weight", self.head_dim
        yield "output_norm.weight", self.width

    @property
    def biases(self) -> Iterator[tuple[str, int]]:
        """(name, values) of what is added to q, k and v."""
        for layer in range(self.layers if self.architecture == "qwen2" else 0):
            yield f"blk.{layer}.attn_q.bias", self.heads * self.head_dim
            yield f"blk.{layer}.attn_k.bias", self.kv_heads * self.head_dim
            yield f"blk.{layer}.attn_v.bias", self.kv_heads * self.head_dim


_TINY = Shape("llama", 2, 256, 512, 4, 2, 64, 512, 10000.0, 1e-5, 2048)

SHAPES = {
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 1e6, 1e-6, 40960, tied=True),
    "qwen3-4b": Shape("qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 1e6, 1e-6, 40960, tied=True),
    "qwen3-8b": Shape("qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 1e6, 1e-6, 40960),
    "qwen2.5-7b": Shape("qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 1e6, 1e-6, 32768),
    "llama-3.1-8b": Shape(
        "llama", 32, 4096, 14336, 32, 8, 128, 128256, 500000.0, 1e-5, 131072, llama3=(8.0, 1.0, 4.0, 8192.0)
    ),
    "tiny-llama": _TINY,
    "tiny-qwen2": replace(_TINY, architecture="qwen2"),
    "tiny-qwen3": replace(_TINY, architecture="qwen3", tied=True),
}
