"""A model's shape, read from its file's metadata and checked: what all families have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from parkway.backends import Attention, KvShape, Rope, StateShape
from parkway.models.keys import Keys

_MOST_LANES, _MOST_LAYERS = 65536, 4096
"""Of a head, and in all: more is damage, and would be allocated before it is seen."""

Kind = Literal["attention", "delta"]
_ATTENTION: Kind = "attention"
_SLIDING = "sliding_attention"


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """Of a layer: `count` experts, of which a row takes `chosen`, each of `ffn_width` hidden values. `normalised`:
    whether the weights of the chosen ones are made to sum to 1."""

    count: int
    chosen: int
    ffn_width: int
    normalised: bool


@dataclass(frozen=True, slots=True)
class Scales:
    """What embeddings are multiplied by and logits are divided by; the cap of logits, 0 where there is none."""

    embedding: float = 1.0
    logit_divisor: float = 1.0
    logit_cap: float = 0.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """What every family's file says. `ffn_width`: of the dense feed forward, 0 if there are experts; `ctx_train`: the
    context that the model was trained on."""

    layers: int
    width: int
    ffn_width: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    epsilon: float
    ctx_train: int


@dataclass(frozen=True, slots=True)
class Config:
    """A model's shape. `attention`: one for each layer that keeps keys and values, without its packed weights; layers
    that turn alike share one Rope. `kinds`: what each layer is."""

    family: str
    layers: int
    width: int
    ffn_width: int
    heads: int
    kv: KvShape
    vocabulary: int
    epsilon: float
    ctx_train: int
    attention: tuple[Attention, ...]
    kinds: tuple[Kind, ...]
    states: StateShape | None = None
    experts: ExpertSizes | None = None
    scales: Scales = Scales()

    @property
    def windows(self) -> tuple[int, ...]:
        """Those that layers have, ascending; 0 where a layer sees all."""
        return tuple(sorted({how.window for how in self.attention}))

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """Those that layers have, each once."""
        return tuple({id(how.rope): how.rope for how in self.attention if how.rope}.values())


def sizes_of(keys: Keys) -> Sizes:
    """Raises BadFile naming the key that is missing or makes no sense."""
    heads, width = keys.count("attention.head_count"), keys.count("embedding_length")
    head_dim = _head_dim(keys, width, heads)
    kv_heads = keys.count("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise keys.bad(f"{heads} heads can't share {kv_heads} KV heads")
    layers, predicting = keys.count("block_count"), keys.count_or_none("nextn_predict_layers")
    if layers > _MOST_LAYERS:
        raise keys.bad(f"{layers} layers make no sense")
    if predicting >= layers:
        raise keys.bad(f"{keys.named('nextn_predict_layers')} is {predicting}, of {layers} layers in all")
    return Sizes(
        layers=layers - predicting,
        width=width,
        ffn_width=0 if keys.count_or_none("expert_count") else keys.count("feed_forward_length"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=_vocabulary(keys),
        epsilon=keys.number("attention.layer_norm_rms_epsilon"),
        ctx_train=keys.count("context_length"),
    )


def config_of(
    keys: Keys,
    sizes: Sizes,
    attention: Sequence[Attention],
    kinds: Sequence[Kind] = (),
    states: StateShape | None = None,
    experts: ExpertSizes | None = None,
) -> Config:
    return Config(
        family=keys.prefix,
        layers=sizes.layers,
        width=sizes.width,
        ffn_width=sizes.ffn_width,
        heads=sizes.heads,
        kv=KvShape(len(attention), sizes.kv_heads, sizes.head_dim),
        vocabulary=sizes.vocabulary,
        epsilon=sizes.epsilon,
        ctx_train=sizes.ctx_train,
        attention=tuple(attention),
        kinds=tuple(kinds or [_ATTENTION] * sizes.layers),
        states=states,
        experts=experts,
    )


def sliding_layers(keys: Keys, sizes: Sizes, period: int) -> list[bool]:
    """Whether each layer sees a window only: as the file lists them, or all but the last of every `period`, or all
    where that is 0."""
    usual = ["full_attention" if period and (layer + 1) % period == 0 else _SLIDING for layer in range(sizes.layers)]
    kinds = keys.each("layer_types", sizes.layers, usual)
    if unknown := [kind for kind in kinds if kind not in (_SLIDING, "full_attention")]:
        raise keys.unsupported(f"layers of kind {unknown[0]!r} are not supported")
    return [kind == _SLIDING for kind in kinds]


def _vocabulary(keys: Keys) -> int:
    vocabulary = keys.rows("token_embd.weight")
    said = keys.count("vocab_size", vocabulary)
    if said != vocabulary:
        raise keys.bad(f"{keys.named('vocab_size')} is {said}, but the embedding has {vocabulary} rows")
    return vocabulary


def _head_dim(keys: Keys, width: int, heads: int) -> int:
    if keys.value("attention.key_length") is None and width % heads:
        raise keys.bad(f"a width of {width} can't be shared by {heads} heads")
    head_dim = keys.count("attention.key_length", width // heads)
    if head_dim > _MOST_LANES:
        raise keys.bad(f"heads of {head_dim} lanes make no sense")
    if keys.count("attention.value_length", head_dim) != head_dim:
        raise keys.unsupported("keys and values of different head widths")
    return head_dim
