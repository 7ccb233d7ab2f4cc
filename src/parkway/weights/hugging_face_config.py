"""config.json of a Hugging Face folder in GGUF's keys. What the forward passes can't do is refused by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from parkway.errors import BadFile, Unsupported
from parkway.weights.hugging_face_rope import rope_values

Config = Mapping[str, Any]

_CLASSES = {
    "Llama": "llama",
    "Mistral": "llama",
    "SmolLM3": "smollm3",
    "Granite": "granite",
    "Olmo2": "olmo2",
    "Qwen2": "qwen2",
    "Qwen3": "qwen3",
    "Gemma2": "gemma2",
    "Gemma3": "gemma3",
    "Phi3": "phi3",
    "Qwen3Moe": "qwen3moe",
    "GptOss": "gpt-oss",
    "Qwen3Next": "qwen3next",
    "Qwen3_5": "qwen35",
    "Qwen3_5Moe": "qwen35moe",
}
"""transformers' classes, without what they are for."""
FAMILIES = frozenset(_CLASSES.values())
_FOR = ("ForCausalLM", "ForConditionalGeneration")
_TYPES = {
    "llama": "Llama",
    "mistral": "Mistral",
    "smollm3": "SmolLM3",
    "granite": "Granite",
    "olmo2": "Olmo2",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "gemma2": "Gemma2",
    "gemma3": "Gemma3",
    "gemma3_text": "Gemma3",
    "phi3": "Phi3",
    "qwen3_moe": "Qwen3Moe",
    "gpt_oss": "GptOss",
    "qwen3_next": "Qwen3Next",
    "qwen3_5": "Qwen3_5",
    "qwen3_5_text": "Qwen3_5",
    "qwen3_5_moe": "Qwen3_5Moe",
    "qwen3_5_moe_text": "Qwen3_5Moe",
}
"""model_type, for files that name no class."""
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
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
    "no_rope_layers": "rope_layers",
    "num_experts": "expert_count",
    "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "norm_topk_prob": "expert_weights_norm",
    "full_attention_interval": "full_attention_interval",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "sliding_window": "attention.sliding_window",
    "layer_types": "layer_types",
    "rope_theta": "rope.freq_base",
    "rope_local_theta": "rope.freq_base_swa",
    "rope_type": "rope.scaling.type",
    "factor": "rope.scaling.factor",
    "low_freq_factor": "rope.scaling.low_freq_factor",
    "high_freq_factor": "rope.scaling.high_freq_factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "attention_factor": "rope.scaling.yarn_attn_factor",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
    "long_factor": "rope.scaling.long_factor",
    "short_factor": "rope.scaling.short_factor",
    "truncate": "rope.scaling.truncate",
    "mscale": "rope.scaling.mscale",
    "mscale_all_dim": "rope.scaling.mscale_all_dim",
    "alpha": "rope.scaling.alpha",
}
"""config.json's own names of what GGUF keeps under `<architecture>.…`, or would."""
_SILENT: dict[str, dict[str, Any]] = {
    "gemma2": {"query_pre_attn_scalar": 256, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh"},
    "gemma3": {"query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh"},
    "qwen3": {"head_dim": 128},
    "qwen3moe": {"norm_topk_prob": False},
    "gpt-oss": {"head_dim": 64},
    **{
        family: {"head_dim": 256, "partial_rotary_factor": 0.25, "linear_value_head_dim": 128}
        for family in ("qwen3next", "qwen35", "qwen35moe")
    },
}
"""What transformers' classes take where config.json is silent and GGUF's readers would take something else."""
_MAY_BE_NONE = ("sliding_window", "attn_logit_softcapping", "final_logit_softcapping")
"""Where null is not silence: there is no such thing then."""
_TIED = ("smollm3", "gemma2", "gemma3")
"""Families whose head is the embedding where config.json is silent."""


def text_config(config: Config) -> Config:
    """The part about text of a model that has other senses."""
    inner = config.get("text_config")
    if not isinstance(inner, dict):
        return config
    outer = ("architectures", "model_type", "quantization_config", "tie_word_embeddings", "eos_token_id")
    return {**inner, **{key: config[key] for key in outer if key in config}}


def architecture(config: Config) -> str:
    """The family, or config.json's own word for one that there is not."""
    return _CLASSES.get(_class(config), _named_class(config))


def is_tied(config: Config) -> bool:
    """Whether the head is the embedding."""
    return bool(config.get("tie_word_embeddings", architecture(config) in _TIED))


def values(path: Path, config: Config) -> dict[str, Any]:
    """The model's shape in GGUF's keys. Raises Unsupported, BadFile; both name `path`."""
    family = architecture(config)
    found: dict[str, Any] = {"general.architecture": family}
    none = {key: 0 for key in _MAY_BE_NONE if key in config}
    said = {**_SILENT.get(family, {}), **none, **{key: value for key, value in config.items() if value is not None}}
    said = {**said, **rope_values(path, said)}
    if family in FAMILIES:
        _refuse_what_is_not_built(path, family, said)
        said = {**said, **_windows(path, said)}
        found |= {f"{family}.{key}": value for key, value in _worked_out(family, said).items()}
        found[f"{family}.rope.pairs"] = "halves"
    for name, value in said.items():
        if name in KEYS and value is not None:
            found.setdefault(f"{family}.{KEYS[name]}", value)
    return found


def _named_class(config: Config) -> str:
    classes, kind = config.get("architectures"), str(config.get("model_type"))
    if isinstance(classes, list) and classes:
        return str(classes[0])
    return f"{_TYPES[kind]}ForCausalLM" if kind in _TYPES else kind


def _class(config: Config) -> str:
    """Without what it is for."""
    name = _named_class(config)
    return next((name.removesuffix(use) for use in _FOR if name.endswith(use)), "")


def _worked_out(family: str, said: Config) -> dict[str, Any]:
    """GGUF's keys for which config.json has other numbers."""
    found: dict[str, Any] = {}
    if family in ("gemma2", "gemma3") and _is_positive(said["query_pre_attn_scalar"]):
        found["attention.scale"] = float(said["query_pre_attn_scalar"]) ** -0.5
    if family == "gpt-oss":
        found["expert_feed_forward_length"] = said.get("intermediate_size")
    v_dim, v_heads = said.get("linear_value_head_dim"), said.get("linear_num_value_heads")
    if _is_positive(v_dim) and _is_positive(v_heads):
        found["ssm.inner_size"] = v_dim * v_heads
    part, head_dim = said.get("partial_rotary_factor"), _head_dim(said)
    if _is_positive(part) and head_dim:
        found["rope.dimension_count"] = int(head_dim * part)
    return {key: value for key, value in found.items() if value is not None}


def _head_dim(said: Config) -> int:
    width, heads = said.get("hidden_size"), said.get("num_attention_heads")
    usual = int(width // heads) if _is_positive(width) and _is_positive(heads) else 0
    found = said.get("head_dim", usual)
    return found if isinstance(found, int) and found < 2**31 else 0


def _is_positive(number: Any) -> TypeGuard[float]:
    return isinstance(number, int | float) and 0 < number < 2**53


def _windows(path: Path, said: Config) -> dict[str, Any]:
    """Which layers see a window only, and how far: each class has its own word for that, and Llama's has none."""
    kinds, name, layers = said.get("layer_types"), _class(said), said.get("num_hidden_layers")
    if kinds is not None:
        if not isinstance(kinds, list):
            raise BadFile(path, f"its layer_types are {type(kinds).__name__}, not a list")
        return {} if "sliding_attention" in kinds else {"sliding_window": None}
    if name in ("Llama", "Granite", "Olmo2") or (_asks_for_windows(name) and not said.get("use_sliding_window")):
        return {"sliding_window": None}
    count = layers if isinstance(layers, int) and 0 < layers < 2**16 else 0
    first, period = said.get("max_window_layers"), said.get("sliding_window_pattern")
    if _asks_for_windows(name):
        if not isinstance(first, int):
            first = 0
        return {"layer_types": ["sliding_attention" if i >= first else "full_attention" for i in range(count)]}
    if name == "Gemma3" and isinstance(period, int) and period > 0:
        return {"layer_types": ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(count)]}
    return {}


def _asks_for_windows(name: str) -> bool:
    return name in ("Qwen2", "Qwen3", "Qwen3Moe", "SmolLM3")


def _refuse_what_is_not_built(path: Path, family: str, said: Config) -> None:
    quantised = said.get("quantization_config")
    if quantised is not None and not (
        family == "gpt-oss" and isinstance(quantised, dict) and quantised.get("quant_method") == "mxfp4"
    ):
        raise Unsupported(f"{path}: quantised weights (quantization_config) are not supported, only BF16, F16 and F32")
    wanted = "gelu_pytorch_tanh" if family in ("gemma2", "gemma3") else "silu"
    name = "hidden_activation" if family in ("gemma2", "gemma3") else "hidden_act"
    if (function := said.get(name, wanted)) != wanted:
        raise Unsupported(f"{path}: {name} {function!r} is not supported, only {wanted!r}")
    for key, usual in _USUAL.items():
        if said.get(key, usual[0]) not in usual:
            raise Unsupported(f"{path}: {key} {said[key]!r} is not supported, only {usual[0]!r}")


_USUAL: dict[str, tuple[Any, ...]] = {
    "mlp_only_layers": ([],),
    "decoder_sparse_step": (1,),
    "swiglu_alpha": (1.702,),
    "swiglu_limit": (7.0,),
    "use_bidirectional_attention": (False,),
    "mlp_bias": (False,),
    "attn_output_gate": (True,),
}
"""What the forward passes take for granted."""
