"""Models small enough to make in a test, of every family, as GGUF files and as Hugging Face folders: random weights, a
byte vocabulary, all that `parkway serve` reads. The same shape and seed has the same values in both."""

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, TokenType, get_tensor_name_map
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from parkway.backends.quant import block_columns
from parkway.weights.shapes import Shape
from tests.quantised import quantised

Float32s = npt.NDArray[np.float32]

LAYERS, WIDTH, FFN_WIDTH, HEADS, KV_HEADS, HEAD_DIM = 2, 64, 96, 4, 2, 16
CTX_TRAIN = 2048
MERGES = ["h e", "Ġ t", "Ġt he"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *(merge.replace(" ", "") for merge in MERGES),
    *SPECIALS,
]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

LLAMA = Shape("llama", LAYERS, WIDTH, FFN_WIDTH, HEADS, KV_HEADS, HEAD_DIM, len(TOKENS), 10000.0, 1e-5, CTX_TRAIN)
LLAMA_3 = replace(LLAMA, rope_base=500000.0, llama3=(8.0, 1.0, 4.0, 512.0))
QWEN2 = replace(LLAMA, architecture="qwen2", rope_base=1e6, kv_heads=1)
QWEN3 = replace(LLAMA, architecture="qwen3", rope_base=1e6, epsilon=1e-6, head_dim=32, tied=True)
FAMILIES = {"llama": LLAMA, "llama 3": LLAMA_3, "qwen2": QWEN2, "qwen3": QWEN3}
WIDE = replace(LLAMA, layers=1, width=256, ffn_width=256, head_dim=64)
"""Wide enough for types whose blocks have 256 values."""
PARTS = (
    *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("self_attn.q_norm", "self_attn.k_norm", "post_attention_layernorm"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
"""Of a layer, as transformers' modeling_llama.py, modeling_qwen2.py and modeling_qwen3.py name them."""
CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def tiny_llama(path: Path, *, types: tuple[str, ...] = ("Q4_1",), seed: int = 0) -> Path:
    """A GGUF file of a Llama of two layers. The vocabulary has 262 tokens."""
    wide = max(map(block_columns, types)) == WIDE.width
    return tiny_gguf(path, WIDE if wide else LLAMA, types=types, seed=seed)


def tiny_gguf(
    path: Path, shape: Shape, *, types: tuple[str, ...] = ("Q4_1",), seed: int = 0, part_tensors: int = 0
) -> Path:
    """Writes a GGUF file to `path` and returns it.

    `types` are GGUF's names of types; the matrices take them in turn, the embedding first, the head last.
    `part_tensors`: most in one file; there are several then, with numbers behind their names.
    """
    writer = GGUFWriter(path, shape.architecture, split_max_tensors=part_tensors)
    _write_shape(writer, shape)
    write_gguf_tokenizer(writer)
    kinds = cycle(types)
    for name, values in drawn(shape, seed).items():
        kind = next(kinds) if values.ndim == 2 else "F32"
        kept = _as_llama_cpp_keeps(name, values, shape)
        raw = quantised(np.atleast_2d(kept), kind).reshape(*kept.shape[:-1], -1)
        writer.add_tensor(name, raw, raw_dtype=GGMLQuantizationType[kind])
    if shape.llama3:
        writer.add_tensor("rope_freqs.weight", llama3_factors(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_folder(
    path: Path,
    shape: Shape,
    *,
    types: tuple[str, ...] = ("BF16",),
    seed: int = 0,
    shards: int = 1,
    config: Mapping[str, Any] = {},
) -> Path:
    """Makes a Hugging Face folder at `path` and returns it. `config` are changes of config.json."""
    path.mkdir(parents=True)
    kinds, names = cycle(types), own_names(shape)
    tensors = {}
    for name, values in drawn(shape, seed).items():
        kind = next(kinds) if values.ndim == 2 else types[0]
        tensors[names[name]] = (kind, values.shape, quantised(np.atleast_2d(values), kind).tobytes())
    write_weights(path, tensors, shards)
    (path / "config.json").write_text(json.dumps({**config_of(shape), **config}))
    write_tokenizer(path)
    return path


def drawn(shape: Shape, seed: int) -> dict[str, Float32s]:
    """Values by GGUF's names, with the two lanes of rotary pairs half a head apart. Those of norms and biases fit all
    types of floats."""
    random = np.random.default_rng(seed)
    made = {
        name: random.standard_normal(extent, np.float32) / np.float32(np.sqrt(extent[-1]))
        for name, extent in shape.matrices
    }
    for name, width in shape.norms:
        made[name] = _short(np.float32(1) + np.float32(0.1) * random.standard_normal(width, np.float32))
    for name, width in shape.biases:
        made[name] = _short(random.standard_normal(width, np.float32))
    return made


def _short(values: Float32s) -> Float32s:
    """Rounded to six bits behind the first."""
    mantissas, exponents = np.frexp(values)
    rounded: Float32s = np.ldexp(np.rint(mantissas * 128) / np.float32(128), exponents)
    return rounded


def _as_llama_cpp_keeps(name: str, values: Float32s, shape: Shape) -> Float32s:
    """llama.cpp's files have rotary pairs of Llama's q and k as neighbours."""
    if shape.architecture != "llama" or (".attn_q." not in name and ".attn_k." not in name):
        return values
    heads = shape.heads if ".attn_q." in name else shape.kv_heads
    halves = values.reshape(heads, 2, shape.head_dim // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def llama3_factors(shape: Shape) -> Float32s:
    """By wavelengths, as Meta's code has it."""
    assert shape.llama3
    factor, low, high, context = shape.llama3
    factors = []
    for lane in range(0, shape.head_dim, 2):
        wavelength = 2 * np.pi * shape.rope_base ** (lane / shape.head_dim)
        if wavelength < context / high:
            factors.append(1.0)
        elif wavelength > context / low:
            factors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def own_names(shape: Shape) -> dict[str, str]:
    """GGUF's name → Hugging Face's, by the table of llama.cpp's converter."""
    architecture = next(arch for arch, name in MODEL_ARCH_NAMES.items() if name == shape.architecture)
    table = get_tensor_name_map(MODEL_ARCH(architecture), shape.layers)
    stems = ["model.embed_tokens", "model.norm", "lm_head"]
    stems += [f"model.layers.{layer}.{part}" for layer in range(shape.layers) for part in PARTS]
    found = {table.get_name(stem): stem for stem in stems}
    own = [str(name) for name, *_ in (*shape.matrices, *shape.norms, *shape.biases)]
    return {name: f"{found[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}" for name in own}


Tensors = Mapping[str, tuple[str, tuple[int, ...], bytes]]
"""By name: type, shape, bytes."""


def write_weights(folder: Path, tensors: Tensors, shards: int = 1) -> None:
    """model.safetensors, or so many files and their index."""
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(tensors))
        return
    places = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(tensors)}
    for file in set(places.values()):
        (folder / file).write_bytes(safetensors({name: tensors[name] for name in tensors if places[name] == file}))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def safetensors(tensors: Tensors) -> bytes:
    """A safetensors file, written by the description of the format."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end := end + len(raw)]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + b"".join(raw for *_, raw in tensors.values())


def config_of(shape: Shape) -> dict[str, Any]:
    """config.json."""
    said: dict[str, Any] = {
        "architectures": [CLASSES[shape.architecture]],
        "model_type": shape.architecture,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.width,
        "intermediate_size": shape.ffn_width,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.rope_base,
        "rope_scaling": None,
        "max_position_embeddings": shape.ctx_train,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
        "hidden_act": "silu",
        "eos_token_id": TOKENS.index("<|endoftext|>"),
    }
    if shape.llama3:
        names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        said["rope_scaling"] = {"rope_type": "llama3"} | dict(zip(names, shape.llama3, strict=True))
    return said


def write_tokenizer(folder: Path) -> None:
    """tokenizer.json and what lies beside it."""
    plain = {token: i for i, token in enumerate(TOKENS) if token not in SPECIALS}
    tokenizer = Tokenizer(models.BPE(plain, [(left, right) for left, right in map(str.split, MERGES)]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"}, "add_bos_token": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATE}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [TOKENS.index("<|im_end|>")]}))


def _write_shape(writer: GGUFWriter, shape: Shape) -> None:
    writer.add_name(f"Tiny {shape.architecture}")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.ctx_train)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.ffn_width)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_vocab_size(shape.vocabulary)


def write_gguf_tokenizer(writer: GGUFWriter) -> None:
    plain = len(TOKENS) - len(SPECIALS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.NORMAL] * plain + [TokenType.CONTROL] * len(SPECIALS))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(TOKENS.index("<|im_start|>"))
    writer.add_eos_token_id(TOKENS.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
