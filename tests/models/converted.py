"""Tiny models of transformers' classes as GGUF files, by the conventions of llama.cpp's converter, written down here
once more without a look at Parkway's reader."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, RopeScalingType, get_tensor_name_map

from tests.checkpoints import write_gguf_tokenizer
from tests.models.transformers_models import Tiny
from tests.models.whole_sequence import read_safetensors
from tests.quantised import quantised

Floats = npt.NDArray[np.float64]
ARCHITECTURES = {
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
NEIGHBOURS = ("llama", "smollm3", "granite")
ONE_ADDED = ("gemma2", "gemma3", "qwen3next", "qwen35", "qwen35moe")
HEAD = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm"}
"""Of a prediction head, which is a block behind the others."""


def as_gguf(tiny: Tiny, folder: Path, path: Path, kind: str = "F32") -> Path:
    """The folder that `tiny` was saved in, as a GGUF file whose matrices have this type."""
    architecture = ARCHITECTURES[tiny.family.name]
    writer = GGUFWriter(path, architecture)
    own = read_safetensors(folder / "model.safetensors")
    said = tiny.config.to_dict() | {"mtp_num_hidden_layers": int(any(name.startswith("mtp.") for name in own))}
    write_values(writer, architecture, said)
    write_gguf_tokenizer(writer)
    for name, values in converted(architecture, said, own):
        taken = kind if values.ndim > 1 and "conv1d" not in name and "gate_inp" not in name else "F32"
        rows = np.ascontiguousarray(values, np.float32).reshape(-1, values.shape[-1])
        raw = quantised(rows, taken).reshape(*values.shape[:-1], -1)
        if taken == "F32":
            raw = raw.view(np.float32)
        writer.add_tensor(name, raw, raw_dtype=GGMLQuantizationType[taken])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted(architecture: str, said: Mapping[str, Any], own: Mapping[str, Floats]) -> Iterator[tuple[str, Floats]]:
    """By GGUF's names, which are those of the library's own table."""
    arch = next(arch for arch, name in MODEL_ARCH_NAMES.items() if name == architecture)
    table = get_tensor_name_map(MODEL_ARCH(arch), said["num_hidden_layers"] + said.get("mtp_num_hidden_layers", 0))
    for name, values in with_stacks(said, in_blocks(said, own)):
        for changed, made in changes(architecture, said, name, values):
            stem, _, suffix = changed.rpartition(".")
            bare = table.get_name(changed)
            yield bare or f"{table.get_name(stem) or stem}.{suffix}", made
    yield from rope_tensors(said)


def in_blocks(said: Mapping[str, Any], own: Mapping[str, Floats]) -> dict[str, Floats]:
    """A prediction head's tensors as those of one more layer."""
    number, found = said["num_hidden_layers"], {}
    for name, values in own.items():
        whole, _, part = name.removesuffix(".weight").partition("mtp.")
        if not whole and part in HEAD:
            name = f"blk.{number}.nextn.{HEAD[part]}.weight"
        found[name.replace("mtp.layers.0.", f"model.layers.{number}.")] = values
    return found


def with_stacks(said: Mapping[str, Any], own: Mapping[str, Floats]) -> Iterator[tuple[str, Floats]]:
    """All experts of a layer as one tensor."""
    for name, values in own.items():
        found = re.fullmatch(r"(.+\.experts)\.(\d+)\.(\w+)\.weight", name)
        if not found:
            yield name, values
        elif found[2] == "0":
            each = (own[f"{found[1]}.{number}.{found[3]}.weight"] for number in range(expert_count(said)))
            yield f"{found[1]}.{found[3]}.weight", np.stack(list(each))


def expert_count(said: Mapping[str, Any]) -> int:
    return int(said.get("num_experts") or said.get("num_local_experts") or 0)


def changes(architecture: str, said: Mapping[str, Any], name: str, values: Floats) -> Iterator[tuple[str, Floats]]:
    """What the converter makes of one tensor."""
    if architecture in NEIGHBOURS and re.search(r"\.(q|k)_proj\.", name):
        heads = said["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
        yield name, values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    elif name.endswith(("experts.gate_up_proj", "experts.gate_up_proj_bias")):
        yield from split_experts(architecture, name, values)
    elif name.endswith(("experts.down_proj", "experts.down_proj_bias")):
        turned = architecture == "gpt-oss" and values.ndim == 3
        kind = "bias" if name.endswith("bias") else "weight"
        yield f"{name.removesuffix('_bias')}.{kind}", values.swapaxes(1, 2) if turned else values
    elif name.endswith("sinks"):
        yield f"{name}.weight", values
    elif "linear_attn." in name:
        yield from delta_changes(architecture, said, name, values)
    elif architecture in ONE_ADDED and name.endswith("norm.weight"):
        yield name, values + 1
    else:
        yield name, values


def split_experts(architecture: str, name: str, values: Floats) -> Iterator[tuple[str, Floats]]:
    at, kind = name.rpartition(".")[0], "bias" if name.endswith("bias") else "weight"
    if architecture == "gpt-oss":
        rows = values if kind == "bias" else values.swapaxes(1, 2)
        gate, up = rows[:, ::2], rows[:, 1::2]
    else:
        gate, up = np.split(values, 2, axis=1)
    yield f"{at}.gate_proj.{kind}", gate
    yield f"{at}.up_proj.{kind}", up


def delta_changes(
    architecture: str, said: Mapping[str, Any], name: str, values: Floats
) -> Iterator[tuple[str, Floats]]:
    k_heads, v_heads = said["linear_num_key_heads"], said["linear_num_value_heads"]
    k_dim, v_dim = said["linear_key_head_dim"], said["linear_value_head_dim"]
    part, share = name.partition("linear_attn.")[2], v_heads // k_heads

    def tiled(rows: Floats, width: int) -> Floats:
        if architecture == "qwen3next":
            return rows
        return rows.reshape(k_heads, share, width, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)

    if part == "in_proj_qkvz.weight":
        by_head = values.reshape(k_heads, -1, values.shape[-1])
        cuts = np.cumsum([k_dim, k_dim, share * v_dim])
        q, k, v, z = (each.reshape(-1, values.shape[-1]) for each in np.split(by_head, cuts, axis=1))
        at = name.removesuffix("in_proj_qkvz.weight")
        yield (
            f"{at}in_proj_qkv.weight".replace("linear_attn.in_proj_qkv", "self_attn.qkv_proj"),
            np.concatenate([q, k, v]),
        )
        yield f"blk.{name.split('.')[2]}.attn_gate.weight", z
    elif part in ("in_proj_qkv.weight", "conv1d.weight"):
        rows = values.reshape(len(values), -1)
        at = 2 * k_heads * k_dim
        yield name, np.concatenate([rows[:at], tiled(rows[at:], v_dim)])
    elif part == "in_proj_z.weight":
        yield name, tiled(values, v_dim)
    elif part in ("in_proj_a.weight", "in_proj_b.weight"):
        yield name, tiled(values, 1)
    elif part == "A_log":
        yield name, -np.exp(np.float32(tiled(values, 1)))  # as wide as the file
    elif part == "dt_bias":
        yield name.replace("dt_bias", "dt_proj.bias"), tiled(values, 1)
    elif part == "out_proj.weight":
        yield name, tiled(values.T, v_dim).T
    else:
        yield name, values


def rope_tensors(said: Mapping[str, Any]) -> Iterator[tuple[str, Floats]]:
    rope = said.get("rope_parameters") or {}
    if rope.get("rope_type") == "longrope":
        yield "rope_factors_long.weight", np.array(rope["long_factor"])
        yield "rope_factors_short.weight", np.array(rope["short_factor"])
    if rope.get("rope_type") == "llama3":
        yield "rope_freqs.weight", np.array(list(llama3_factors(rope, said["head_dim"])))


def llama3_factors(rope: Mapping[str, Any], dims: int) -> Iterator[float]:
    """By wavelengths, as Meta's code has it."""
    context, low, high = (
        rope[name] for name in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    for lane in range(0, dims, 2):
        wavelength = 2 * np.pi * rope["rope_theta"] ** (lane / dims)
        smooth = (context / wavelength - low) / (high - low)
        between = 1 / ((1 - smooth) / rope["factor"] + smooth) if 0 < smooth < 1 else 1.0
        yield rope["factor"] if wavelength > context / low else between


def write_values(writer: GGUFWriter, architecture: str, said: Mapping[str, Any]) -> None:
    predicting = said.get("mtp_num_hidden_layers", 0)
    writer.add_block_count(said["num_hidden_layers"] + predicting)
    if predicting:
        writer.add_nextn_predict_layers(predicting)
    writer.add_context_length(said["max_position_embeddings"])
    writer.add_embedding_length(said["hidden_size"])
    if said.get("intermediate_size"):
        writer.add_feed_forward_length(said["intermediate_size"])
    writer.add_head_count(said["num_attention_heads"])
    writer.add_head_count_kv(said["num_key_value_heads"])
    writer.add_key_length(said["head_dim"])
    writer.add_value_length(said["head_dim"])
    writer.add_layer_norm_rms_eps(said["rms_norm_eps"])
    writer.add_vocab_size(said["vocab_size"])
    _write_rope(writer, architecture, said)
    _write_scales(writer, architecture, said)
    if architecture in ("gemma2", "gemma3", "gpt-oss", "phi3"):
        writer.add_sliding_window(said["sliding_window"] or 0)
    if expert_count(said):
        _write_experts(writer, architecture, said)
    if said.get("linear_num_key_heads"):
        _write_delta(writer, said)


def _write_rope(writer: GGUFWriter, architecture: str, said: Mapping[str, Any]) -> None:
    rope = said["rope_parameters"]
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    lanes = int(said["head_dim"] * rope.get("partial_rotary_factor", 1))
    writer.add_rope_dimension_count(lanes)
    if architecture.startswith("qwen35"):  # of time, height and width in a picture, and none; equal in text
        pairs, third = lanes // 2, lanes // 6
        writer.add_rope_dimension_sections([pairs - 2 * third, third, third, 0])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if rope.get("beta_fast"):
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    if rope["rope_type"] == "longrope":
        context, original = said["max_position_embeddings"], rope["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(context / original) / np.log(original))))


def _write_scales(writer: GGUFWriter, architecture: str, said: Mapping[str, Any]) -> None:
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(said["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(said["final_logit_softcapping"])
    if architecture == "granite":
        writer.add_attention_scale(said["attention_multiplier"])
        writer.add_embedding_scale(said["embedding_multiplier"])
        writer.add_residual_scale(said["residual_multiplier"])
        writer.add_logit_scale(said["logits_scaling"])


def _write_experts(writer: GGUFWriter, architecture: str, said: Mapping[str, Any]) -> None:
    writer.add_expert_count(expert_count(said))
    writer.add_expert_used_count(said["num_experts_per_tok"])
    width = said["intermediate_size"] if architecture == "gpt-oss" else said["moe_intermediate_size"]
    writer.add_expert_feed_forward_length(width)
    if said.get("shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(said["shared_expert_intermediate_size"])


def _write_delta(writer: GGUFWriter, said: Mapping[str, Any]) -> None:
    writer.add_ssm_conv_kernel(said["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(said["linear_key_head_dim"])
    writer.add_ssm_group_count(said["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(said["linear_num_value_heads"])
    writer.add_ssm_inner_size(said["linear_value_head_dim"] * said["linear_num_value_heads"])
    writer.add_full_attention_interval(4)
