"""Dense transformers: RMS norm, rotary grouped attention, SwiGLU. What families differ in are class attributes."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from parkway.backends import HeadNorms, Operations
from parkway.models.config import dense_config
from parkway.models.tensors import Pack, Tensors
from parkway.weights.checkpoint import Checkpoint
from parkway.weights.rope import in_halves


@dataclass(frozen=True, slots=True)
class Layer:
    """Packed weights of one layer."""

    attn_norm: Any
    qkv: Any
    head_norms: HeadNorms | None
    o: Any
    ffn_norm: Any
    gate: Any
    up: Any
    down: Any


class Dense:
    """A forward pass and its packed weights. Raises BadFile naming a tensor that is missing or has the wrong shape."""

    rotary_pairs: ClassVar[Literal["neighbours", "halves"]] = "halves"
    """Where the rows of q and k of a GGUF file have the two lanes of a rotary pair."""
    needs_bias: ClassVar[bool] = False
    """Whether q, k and v must have biases. Otherwise they may."""
    has_head_norms: ClassVar[bool] = False

    def __init__(self, checkpoint: Checkpoint, pack: Pack) -> None:
        self.config = c = dense_config(checkpoint)
        tensors = Tensors(checkpoint, pack)
        family = checkpoint.value("general.architecture")
        self._interleaved = checkpoint.value(f"{family}.rope.pairs", self.rotary_pairs) == "neighbours"
        self.embedding = tensors.matrix("token_embd", c.vocabulary, c.width)
        self.layers = [self._layer(tensors, f"blk.{i}") for i in range(c.layers)]
        self.norm = tensors.vector("output_norm", c.width)
        self.head = tensors.matrix("output", c.vocabulary, c.width) if tensors.has("output.weight") else self.embedding
        tensors.refuse_what_is_left()

    def forward(self, ops: Operations) -> Any:
        """Logits [logit rows, vocabulary] of the step's rows."""
        epsilon = self.config.epsilon
        x = ops.embed(self.embedding)
        for i, layer in enumerate(self.layers):
            q, k, v = ops.linear(ops.rms_norm(x, layer.attn_norm, epsilon), layer.qkv)
            attended = ops.attention(ops.rope_and_write(q, k, v, i, layer.head_norms), i)
            if i == len(self.layers) - 1:  # rows that nobody wants logits of have done their part: they wrote K and V
                x, attended = ops.take(x), ops.take(attended)
            x = ops.linear_add(attended, layer.o, x)
            hidden = ops.gated(ops.rms_norm(x, layer.ffn_norm, epsilon), layer.gate, layer.up)
            x = ops.linear_add(hidden, layer.down, x)
        return ops.logits(ops.rms_norm(x, self.norm, epsilon), self.head)

    def _layer(self, tensors: Tensors, at: str) -> Layer:
        c = self.config
        return Layer(
            attn_norm=tensors.vector(f"{at}.attn_norm", c.width),
            qkv=self._qkv(tensors, at),
            head_norms=self._head_norms(tensors, at) if self.has_head_norms else None,
            o=tensors.matrix(f"{at}.attn_output", c.width, c.heads * c.kv.head_dim),
            ffn_norm=tensors.vector(f"{at}.ffn_norm", c.width),
            gate=tensors.matrix(f"{at}.ffn_gate", c.ffn_width, c.width),
            up=tensors.matrix(f"{at}.ffn_up", c.ffn_width, c.width),
            down=tensors.matrix(f"{at}.ffn_down", c.width, c.ffn_width),
        )

    def _qkv(self, tensors: Tensors, at: str) -> Any:
        kv_heads = self.config.kv.kv_heads
        heads = {"attn_q": self.config.heads, "attn_k": kv_heads, "attn_v": kv_heads}
        biased = self.needs_bias or any(tensors.has(f"{at}.{name}.bias") for name in heads)
        return tensors.pack.together(
            *(self._projection(tensors, f"{at}.{name}", count, biased) for name, count in heads.items())
        )

    def _projection(self, tensors: Tensors, name: str, heads: int, biased: bool) -> Any:
        rows = heads * self.config.kv.head_dim
        matrix = tensors.raw(f"{name}.weight", rows, self.config.width)
        bias = tensors.raw(f"{name}.bias", rows) if biased else None
        if self._interleaved and not name.endswith("attn_v"):
            dims = self.config.rope.dims
            matrix, bias = in_halves(matrix, heads, dims), None if bias is None else in_halves(bias, heads, dims)
        return tensors.pack.matrix(matrix, bias)

    def _head_norms(self, tensors: Tensors, at: str) -> HeadNorms:
        width = self.config.kv.head_dim
        q, k = (tensors.vector(f"{at}.{name}", width) for name in ("attn_q_norm", "attn_k_norm"))
        return HeadNorms(q, k, self.config.epsilon)
