"""Model files small enough to make in a test: random weights, a byte vocabulary, all that `parkway serve` reads."""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize
from tokenizers.pre_tokenizers import ByteLevel

LAYERS, WIDTH, FFN_WIDTH, HEADS, KV_HEADS, HEAD_DIM = 2, 64, 96, 4, 2, 16
CTX_TRAIN = 2048
MERGES = ["h e", "Ġ t", "Ġt he"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOKENS = [*sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES), *SPECIALS]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_llama(path: Path, *, types: tuple[str, ...] = ("Q4_1",), seed: int = 0) -> Path:
    """Writes a Llama of two layers with random weights to `path`, and returns it. The vocabulary has 262 tokens.

    `types` are GGUF's names of types; the matrices take them in turn, the embedding first, the head last.
    """
    writer = GGUFWriter(path, "llama")
    _write_shape(writer)
    _write_tokenizer(writer)
    random, kinds = np.random.default_rng(seed), cycle(types)
    for name, rows, columns in _matrices():
        kind = GGMLQuantizationType[next(kinds)]
        values = random.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(columns))
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    for name in _vectors():
        writer.add_tensor(name, _near_one(random))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _matrices() -> Iterator[tuple[str, int, int]]:
    yield "token_embd.weight", len(TOKENS), WIDTH
    for layer in range(LAYERS):
        yield f"blk.{layer}.attn_q.weight", HEADS * HEAD_DIM, WIDTH
        yield f"blk.{layer}.attn_k.weight", KV_HEADS * HEAD_DIM, WIDTH
        yield f"blk.{layer}.attn_v.weight", KV_HEADS * HEAD_DIM, WIDTH
        yield f"blk.{layer}.attn_output.weight", WIDTH, HEADS * HEAD_DIM
        yield f"blk.{layer}.ffn_gate.weight", FFN_WIDTH, WIDTH
        yield f"blk.{layer}.ffn_up.weight", FFN_WIDTH, WIDTH
        yield f"blk.{layer}.ffn_down.weight", WIDTH, FFN_WIDTH
    yield "output.weight", len(TOKENS), WIDTH


def _vectors() -> Iterator[str]:
    for layer in range(LAYERS):
        yield f"blk.{layer}.attn_norm.weight"
        yield f"blk.{layer}.ffn_norm.weight"
    yield "output_norm.weight"


def _near_one(random: np.random.Generator) -> npt.NDArray[np.float32]:
    return np.float32(1) + np.float32(0.1) * random.standard_normal(WIDTH, np.float32)


def _write_shape(writer: GGUFWriter) -> None:
    writer.add_name("Tiny Llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CTX_TRAIN)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FFN_WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(TOKENS))


def _write_tokenizer(writer: GGUFWriter) -> None:
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
