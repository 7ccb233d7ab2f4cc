"""config.json of a Hugging Face folder in GGUF's keys. What the forward passes can't do is refused by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parkway.errors import BadFile, Unsupported

Config = Mapping[str, Any]

_CLASSES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
FAMILIES = frozenset(_CLASSES.values())
_CLASS_OF_TYPE = {name.removesuffix("ForCausalLM").lower(): name for name in _CLASSES}
KEYS = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "max_position_embeddings": "context_length",
    "vocab_size": "vocab_size",
    "rope_theta": "rope.freq_base",
    "rope_type": "rope.scaling.type",
    "factor": "rope.scaling.factor",
    "low_freq_factor": "rope.scaling.low_freq_factor",
    "high_freq_factor": "rope.scaling.high_freq_factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
}
"""config.json's own names of what GGUF keeps under `<architecture>.…`."""


def architecture(config: Config) -> str:
    """The family, or config.json's own word for one that there is not."""
    return _CLASSES.get(name := _class(config), name)


def values(path: Path, config: Config) -> dict[str, Any]:
    """The model's shape in GGUF's keys. Raises Unsupported, BadFile; both name `path`."""
    family = architecture(config)
    found: dict[str, Any] = {"general.architecture": family}
    for name, value in {**config, **_rope(path, config)}.items():
        if name in KEYS and value is not None:
            found[f"{family}.{KEYS[name]}"] = value
    if family in FAMILIES:
        _refuse_what_is_not_built(path, config)
        found[f"{family}.rope.pairs"] = "halves"
    return found


def _class(config: Config) -> str:
    classes, kind = config.get("architectures"), str(config.get("model_type"))
    return str(classes[0]) if isinstance(classes, list) and classes else _CLASS_OF_TYPE.get(kind, kind)


def _rope(path: Path, config: Config) -> Config:
    """What older files have under rope_scaling, newer ones under rope_parameters, with rope_theta inside."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise BadFile(path, f"its rope scaling is {type(rope).__name__}, not an object")
    kind = rope.get("rope_type") or rope.get("type") or "default"
    return {**rope, "rope_type": "none" if kind == "default" else kind}


def _refuse_what_is_not_built(path: Path, config: Config) -> None:
    if config.get("quantization_config") is not None:
        raise Unsupported(f"{path}: quantised weights (quantization_config) are not supported, only BF16, F16 and F32")
    if (function := config.get("hidden_act", "silu")) != "silu":
        raise Unsupported(f"{path}: hidden_act {function!r} is not supported, only 'silu'")
    window, context = config.get("sliding_window"), config.get("max_position_embeddings")
    if isinstance(window, int) and isinstance(context, int) and window < context and _has_windows(config):
        raise Unsupported(f"{path}: sliding_window {window}, shorter than the context of {context}, is not supported")


def _has_windows(config: Config) -> bool:
    """Whether any layer attends to a window only: each class has its own word for that, and Llama's has none."""
    kinds, name = config.get("layer_types"), _class(config)
    if isinstance(kinds, list):
        return "sliding_attention" in kinds
    if name == "MistralForCausalLM":
        return True
    first, layers = config.get("max_window_layers"), config.get("num_hidden_layers")
    none = isinstance(first, int) and isinstance(layers, int) and first >= layers
    return name != "LlamaForCausalLM" and bool(config.get("use_sliding_window")) and not none
