"""Decoders of attention and a gated feed forward, with RMS norms. What families differ in are class attributes and a
few methods; none knows an array library."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from parkway.backends import Activation, Attention, HeadNorms, Operations
from parkway.models.config import Config, Scales, Sizes, config_of, sizes_of, sliding_layers
from parkway.models.keys import Keys
from parkway.models.ropes import rope_of
from parkway.models.tensors import Bias, Pack, Tensors
from parkway.models.unread_keys import refuse_what_is_asked
from parkway.weights.checkpoint import Checkpoint, RawTensor
from parkway.weights.derived import mapped
from parkway.weights.rope import in_halves


@dataclass(frozen=True, slots=True)
class Layer:
    """Packed weights of one layer; None where a family has no such norm. `mixer`: what rows look at earlier ones
    with; `feed`: what each goes through alone."""

    attn_norm: Any
    mixer: Any
    output: Any
    attn_post_norm: Any
    ffn_norm: Any
    feed: Any
    ffn_post_norm: Any


@dataclass(frozen=True, slots=True)
class Attending:
    """`qkv`: matrices packed together."""

    qkv: Any
    how: Attention


@dataclass(frozen=True, slots=True)
class Gated:
    gate: Any
    up: Any
    down: Any


@dataclass(frozen=True, slots=True)
class PredictionHead:
    """Packed weights that draft the token after next: a layer of its own over a chat's rows, each made of the row that
    the model's logits come from and of the next token's embedding. Kept for speculation; no forward pass reads it yet.

    `embedding_norm`, `hidden_norm`: of the two, before they are projected. `from_embedding`, `from_hidden`: the halves
    of that projection, for `Operations.linear` and for `linear_add`, which sums them. `layer`: its attention is of a
    number behind those of the model's layers. `norm`, `output`: what its logits are made of and by, where `output` and
    `embedding` are the model's own unless the file has others for it.
    """

    embedding_norm: Any
    hidden_norm: Any
    from_embedding: Any
    from_hidden: Any
    layer: Layer
    norm: Any
    embedding: Any
    output: Any


class Dense:
    """A forward pass and its packed weights. Raises BadFile naming a tensor that is missing or has the wrong shape."""

    defaults: ClassVar[Mapping[str, Any]] = {}
    """Of metadata keys on which files may be silent."""
    rotary_pairs: ClassVar[Literal["neighbours", "halves"]] = "halves"
    """Where the rows of q and k of a GGUF file have the two lanes of a rotary pair."""
    needs_bias: ClassVar[bool] = False
    """Whether q, k, v and experts must have biases. Otherwise q, k and v may."""
    output_bias: ClassVar[Bias] = "may"
    """Of the matrix behind attention."""
    has_head_norms: ClassVar[bool] = False
    has_sinks: ClassVar[bool] = False
    activation: ClassVar[Activation] = "silu"
    window_period: ClassVar[int] = 0
    """Of so many layers, all but the last see a window only; 0: all, where the file has a window."""
    attn_norm: ClassVar[str | None] = "attn_norm"
    attn_post_norm: ClassVar[str | None] = None
    ffn_norm: ClassVar[str | None] = "ffn_norm"
    ffn_post_norm: ClassVar[str | None] = None

    def __init__(self, checkpoint: Checkpoint, pack: Pack) -> None:
        keys, tensors = Keys(checkpoint, self.defaults), Tensors(checkpoint, pack)
        self.config = c = self.described(checkpoint)
        self._of_converter = keys.value("rope.pairs") is None
        self._interleaved = keys.value("rope.pairs", self.rotary_pairs) == "neighbours"
        self.embedding = tensors.matrix("token_embd", c.vocabulary, c.width)
        self.layers = [self.layer(tensors, number) for number in range(c.layers)]
        self.norm = self.final_norm(tensors)
        self.head = tensors.matrix("output", c.vocabulary, c.width) if tensors.has("output.weight") else self.embedding
        self.prediction_head = self.predicting(keys, tensors)
        tensors.refuse_what_is_left()

    def forward(self, ops: Operations) -> Any:
        """Logits [logit rows, vocabulary] of the step's rows."""
        scales = self.config.scales
        x = ops.embed(self.embedding, scales.embedding)
        for layer in self.layers:
            mixed = self.mix(ops, layer, x)
            if layer is self.layers[-1]:  # rows that nobody wants logits of have done their part: they wrote K and V
                x, mixed = ops.take(x), ops.take(mixed)
            x = self.joined(ops, mixed, layer.output, layer.attn_post_norm, x)
            x = self.feed_forward(ops, layer, x)
        return ops.logits(ops.rms_norm(x, self.norm, self.config.epsilon), self.head, scales.logit_cap)

    def mix(self, ops: Operations, layer: Layer, x: Any) -> Any:
        """What each row takes from its chat's earlier ones, before it is projected back."""
        q, k, v = ops.linear(self.normed(ops, x, layer.attn_norm), layer.mixer.qkv)
        return ops.attention(ops.rope_and_write(q, k, v, layer.mixer.how), layer.mixer.how)

    def feed_forward(self, ops: Operations, layer: Layer, x: Any) -> Any:
        feed = layer.feed
        hidden = ops.gated(self.normed(ops, x, layer.ffn_norm), feed.gate, feed.up, self.activation)
        return self.joined(ops, hidden, feed.down, layer.ffn_post_norm, x)

    def normed(self, ops: Operations, x: Any, weight: Any) -> Any:
        return x if weight is None else ops.rms_norm(x, weight, self.config.epsilon)

    def joined(self, ops: Operations, x: Any, matrix: Any, norm: Any, residual: Any) -> Any:
        """residual + x through the matrix, normed where the family does that."""
        if norm is None:
            return ops.linear_add(x, matrix, residual)
        return ops.norm_add(ops.linear(x, matrix)[0], norm, self.config.epsilon, residual)

    @classmethod
    def described(cls, checkpoint: Checkpoint) -> Config:
        """Its shape, before a tensor is looked at. Raises BadFile, Unsupported."""
        keys = Keys(checkpoint, cls.defaults)
        refuse_what_is_asked(keys)
        sizes = sizes_of(keys)
        return replace(cls.configured(keys, sizes), scales=cls.scales(keys, sizes))

    @classmethod
    def configured(cls, keys: Keys, sizes: Sizes) -> Config:
        return config_of(keys, sizes, cls.attends(keys, sizes))

    @classmethod
    def attends(cls, keys: Keys, sizes: Sizes) -> list[Attention]:
        """How each layer attends, those with a window among them if the file has one."""
        rope, window = rope_of(keys, sizes.head_dim), keys.count_or_none("attention.sliding_window")
        scale, cap = cls.score_scale(keys, sizes), keys.number_or_none("attn_logit_softcapping")
        return [
            Attention(layer, sizes.heads, scale, rope, window=window if slides else 0, soft_cap=cap)
            for layer, slides in enumerate(sliding_layers(keys, sizes, cls.window_period))
        ]

    @classmethod
    def score_scale(cls, keys: Keys, sizes: Sizes) -> float:
        """What products of q and k are multiplied by."""
        return keys.number("attention.scale", sizes.head_dim**-0.5)

    @classmethod
    def scales(cls, keys: Keys, sizes: Sizes) -> Scales:
        return Scales()

    def predicting(self, keys: Keys, tensors: Tensors) -> PredictionHead | None:
        """What drafts tokens further on, in families whose files may have that."""
        return None

    def final_norm(self, tensors: Tensors) -> Any:
        """Its weight, divided as logits are: they are products with what it makes."""
        norm = tensors.raw("output_norm.weight", self.config.width)
        divisor = self.config.scales.logit_divisor
        return tensors.pack.vector(norm if divisor == 1 else mapped(norm, lambda values: values / divisor))

    def layer(self, tensors: Tensors, number: int) -> Layer:
        at = f"blk.{number}"
        attn_norm = self._norm(tensors, at, self.attn_norm)
        mixer, output = self.mixer(tensors, number)
        return Layer(
            attn_norm=attn_norm,
            mixer=mixer,
            output=output if self.attn_post_norm is None else tensors.pack.together(output),
            attn_post_norm=self._norm(tensors, at, self.attn_post_norm),
            ffn_norm=self._norm(tensors, at, self.ffn_norm),
            feed=self.feed(tensors, at),
            ffn_post_norm=self._norm(tensors, at, self.ffn_post_norm),
        )

    def mixer(self, tensors: Tensors, number: int) -> tuple[Any, Any]:
        """What `mix` needs of a layer, and the matrix that projects back."""
        return self.attending(tensors, number, self.config.attention[number])

    def attending(self, tensors: Tensors, number: int, how: Attention) -> tuple[Attending, Any]:
        c, at = self.config, f"blk.{number}"
        qkv, norms = self.qkv(tensors, at), self._head_norms(tensors, at) if self.has_head_norms else None
        output = tensors.matrix(f"{at}.attn_output", c.width, c.heads * c.kv.head_dim, bias=self.output_bias)
        sinks = tensors.vector(f"{at}.attn_sinks", c.heads) if self.has_sinks else None
        return Attending(qkv, replace(how, norms=norms, sinks=sinks)), output

    def qkv(self, tensors: Tensors, at: str) -> Any:
        kv_heads = self.config.kv.kv_heads
        heads = {"attn_q": self.config.heads, "attn_k": kv_heads, "attn_v": kv_heads}
        biased = self.needs_bias or any(tensors.has(f"{at}.{name}.bias") for name in heads)
        return tensors.pack.together(
            *(self._projection(tensors, f"{at}.{name}", count, biased) for name, count in heads.items())
        )

    def feed(self, tensors: Tensors, at: str) -> Any:
        c = self.config
        gate, up = (tensors.matrix(f"{at}.{name}", c.ffn_width, c.width) for name in ("ffn_gate", "ffn_up"))
        down = tensors.matrix(f"{at}.ffn_down", c.width, c.ffn_width)
        return Gated(
            gate=gate,
            up=up,
            down=down if self.ffn_post_norm is None else tensors.pack.together(down),
        )

    def _projection(self, tensors: Tensors, name: str, heads: int, biased: bool) -> Any:
        rows = heads * self.config.kv.head_dim
        matrix = tensors.raw(f"{name}.weight", rows, self.config.width)
        bias = tensors.raw(f"{name}.bias", rows) if biased else None
        if self._interleaved and not name.endswith("attn_v"):
            matrix, bias = self._in_halves(matrix, heads), None if bias is None else self._in_halves(bias, heads)
        return tensors.pack.matrix(matrix, bias)

    def _in_halves(self, tensor: RawTensor, heads: int) -> RawTensor:
        ropes = self.config.ropes
        return in_halves(tensor, heads, ropes[0].dims) if ropes else tensor

    def _head_norms(self, tensors: Tensors, at: str) -> HeadNorms:
        width = self.config.kv.head_dim
        q, k = (tensors.vector(f"{at}.{name}", width) for name in ("attn_q_norm", "attn_k_norm"))
        return HeadNorms(q, k, self.config.epsilon)

    def _norm(self, tensors: Tensors, at: str, name: str | None) -> Any:
        return None if name is None else tensors.vector(f"{at}.{name}", self.config.width)
