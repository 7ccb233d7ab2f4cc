"""Shapes of well-known models, by name: what random weights are made in."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

_HEAD_NORMS = ("qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe")


@dataclass(frozen=True, slots=True)
class Mixture:
    """Of a layer: `count` experts of `ffn_width` hidden values, of which a row takes `chosen`; and one of `shared`
    hidden values that all take, where that is not 0."""

    count: int
    chosen: int
    ffn_width: int
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Nets:
    """Delta nets, in all layers but the last of every `interval`."""

    k_heads: int
    v_heads: int
    dim: int
    taps: int = 4
    interval: int = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """A transformer's shape. `llama3`: factor, low and high frequency factor, original context. `rope_dims`: lanes of a
    head that are turned, all where it is 0. `predicts`: with a prediction head, one more layer with attention."""

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
    rope_dims: int = 0
    mixture: Mixture | None = None
    nets: Nets | None = None
    predicts: bool = False

    @property
    def values(self) -> dict[str, Any]:
        """GGUF's keys."""
        said: dict[str, Any] = {
            "block_count": self.layers + self.predicts,
            "context_length": self.ctx_train,
            "embedding_length": self.width,
            "feed_forward_length": self.ffn_width,
            "vocab_size": self.vocabulary,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": self.epsilon,
            "rope.dimension_count": self.rope_dims or self.head_dim,
            "rope.freq_base": self.rope_base,
        }
        if self.llama3:
            names = ("factor", "low_freq_factor", "high_freq_factor", "original_context_length")
            said |= {f"rope.scaling.{name}": value for name, value in zip(names, self.llama3, strict=True)}
            said["rope.scaling.type"] = "llama3"
        said |= _mixture_values(self.mixture) if self.mixture else {}
        said |= _net_values(self.nets) if self.nets else {}
        said |= {"nextn_predict_layers": 1} if self.predicts else {}
        return {"general.architecture": self.architecture} | {
            f"{self.architecture}.{key}": value for key, value in said.items()
        }

    @property
    def matrices(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """(name, outermost first), the embedding first."""
        yield "token_embd.weight", (self.vocabulary, self.width)
        for layer in range(self.layers + self.predicts):
            at = f"blk.{layer}"
            yield from self._net(at, self.nets) if self._remembers(layer) else self._attention(at)
            yield from self._experts(at, self.mixture) if self.mixture else self._feed(at, "", self.ffn_width)
        if self.predicts:
            yield f"blk.{self.layers}.nextn.eh_proj.weight", (self.width, 2 * self.width)
        if not self.tied:
            yield "output.weight", (self.vocabulary, self.width)

    @property
    def norms(self) -> Iterator[tuple[str, int]]:
        """(name, values) of the weights of RMS norms."""
        for layer in range(self.layers + self.predicts):
            at, remembers = f"blk.{layer}", self._remembers(layer)
            yield f"{at}.attn_norm.weight", self.width
            yield f"{at}.{'post_attention_norm' if self.nets else 'ffn_norm'}.weight", self.width
            if self.architecture in _HEAD_NORMS and not remembers:
                yield f"{at}.attn_q_norm.weight", self.head_dim
                yield f"{at}.attn_k_norm.weight", self.head_dim
            if self.nets and remembers:
                yield f"{at}.ssm_norm.weight", self.nets.dim
        if self.predicts:
            for norm in ("enorm", "hnorm", "shared_head_norm"):
                yield f"blk.{self.layers}.nextn.{norm}.weight", self.width
        yield "output_norm.weight", self.width

    @property
    def biases(self) -> Iterator[tuple[str, int]]:
        """(name, values) of what is added to q, k and v, and to the steps of delta nets."""
        for layer in range(self.layers):
            if self.architecture == "qwen2":
                yield f"blk.{layer}.attn_q.bias", self.heads * self.head_dim
                yield f"blk.{layer}.attn_k.bias", self.kv_heads * self.head_dim
                yield f"blk.{layer}.attn_v.bias", self.kv_heads * self.head_dim
            if self.nets and self._remembers(layer):
                yield f"blk.{layer}.ssm_dt.bias", self.nets.v_heads

    @property
    def decays(self) -> Iterator[tuple[str, int]]:
        """(name, values) of what delta nets forget by: negative numbers."""
        for layer in range(self.layers):
            if self.nets and self._remembers(layer):
                yield f"blk.{layer}.ssm_a", self.nets.v_heads

    def _remembers(self, layer: int) -> bool:
        return self.nets is not None and layer < self.layers and (layer + 1) % self.nets.interval != 0

    def _attention(self, at: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        q_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield f"{at}.attn_q.weight", (2 * q_width if self.nets else q_width, self.width)
        yield f"{at}.attn_k.weight", (kv_width, self.width)
        yield f"{at}.attn_v.weight", (kv_width, self.width)
        yield f"{at}.attn_output.weight", (self.width, q_width)

    def _net(self, at: str, nets: Nets | None) -> Iterator[tuple[str, tuple[int, ...]]]:
        assert nets
        inner, channels = nets.v_heads * nets.dim, (2 * nets.k_heads + nets.v_heads) * nets.dim
        yield f"{at}.attn_qkv.weight", (channels, self.width)
        yield f"{at}.attn_gate.weight", (inner, self.width)
        yield f"{at}.ssm_alpha.weight", (nets.v_heads, self.width)
        yield f"{at}.ssm_beta.weight", (nets.v_heads, self.width)
        yield f"{at}.ssm_conv1d.weight", (channels, nets.taps)
        yield f"{at}.ssm_out.weight", (self.width, inner)

    def _experts(self, at: str, mixture: Mixture) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{at}.ffn_gate_inp.weight", (mixture.count, self.width)
        yield f"{at}.ffn_gate_exps.weight", (mixture.count, mixture.ffn_width, self.width)
        yield f"{at}.ffn_up_exps.weight", (mixture.count, mixture.ffn_width, self.width)
        yield f"{at}.ffn_down_exps.weight", (mixture.count, self.width, mixture.ffn_width)
        if mixture.shared:
            yield f"{at}.ffn_gate_inp_shexp.weight", (1, self.width)
            yield from self._feed(at, "_shexp", mixture.shared)

    def _feed(self, at: str, kind: str, hidden: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{at}.ffn_gate{kind}.weight", (hidden, self.width)
        yield f"{at}.ffn_up{kind}.weight", (hidden, self.width)
        yield f"{at}.ffn_down{kind}.weight", (self.width, hidden)


def _mixture_values(mixture: Mixture) -> dict[str, Any]:
    said = {
        "expert_count": mixture.count,
        "expert_used_count": mixture.chosen,
        "expert_feed_forward_length": mixture.ffn_width,
    }
    return said | ({"expert_shared_feed_forward_length": mixture.shared} if mixture.shared else {})


def _net_values(nets: Nets) -> dict[str, Any]:
    return {
        "full_attention_interval": nets.interval,
        "ssm.conv_kernel": nets.taps,
        "ssm.group_count": nets.k_heads,
        "ssm.inner_size": nets.v_heads * nets.dim,
        "ssm.state_size": nets.dim,
        "ssm.time_step_rank": nets.v_heads,
    }


_TINY = Shape("llama", 2, 256, 512, 4, 2, 64, 512, 10000.0, 1e-5, 2048)

SHAPES = {
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 1e6, 1e-6, 40960, tied=True),
    "qwen3-4b": Shape("qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 1e6, 1e-6, 40960, tied=True),
    "qwen3-8b": Shape("qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 1e6, 1e-6, 40960),
    "qwen2.5-7b": Shape("qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 1e6, 1e-6, 32768),
    "llama-3.1-8b": Shape(
        "llama", 32, 4096, 14336, 32, 8, 128, 128256, 500000.0, 1e-5, 131072, llama3=(8.0, 1.0, 4.0, 8192.0)
    ),
    "qwen3-30b-a3b": Shape(
        "qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 1e6, 1e-6, 40960, mixture=Mixture(128, 8, 768)
    ),
    "qwen3.5-4b": Shape(
        *("qwen35", 32, 2560, 9216, 16, 4, 256, 248320, 1e7, 1e-6, 262144),
        tied=True,
        rope_dims=64,
        nets=Nets(16, 32, 128),
        predicts=True,
    ),
    "qwen3.6-35b-a3b": Shape(
        *("qwen35moe", 40, 2048, 512, 16, 2, 256, 248320, 1e7, 1e-6, 262144),
        rope_dims=64,
        mixture=Mixture(256, 8, 512, shared=512),
        nets=Nets(16, 32, 128),
        predicts=True,
    ),
    "tiny-llama": _TINY,
    "tiny-qwen2": replace(_TINY, architecture="qwen2"),
    "tiny-qwen3": replace(_TINY, architecture="qwen3", tied=True),
    "tiny-qwen3moe": replace(_TINY, architecture="qwen3moe", mixture=Mixture(8, 3, 256)),
    "tiny-qwen35": replace(_TINY, architecture="qwen35", layers=4, nets=Nets(2, 4, 64), predicts=True),
    "tiny-qwen35moe": replace(
        _TINY,
        architecture="qwen35moe",
        layers=4,
        mixture=Mixture(8, 3, 256, shared=256),
        nets=Nets(2, 4, 64),
        predicts=True,
    ),
}
