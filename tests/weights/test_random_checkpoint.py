"""Random weights: the same for the same seed, of a sane size, complete for their family, with text to every token."""

from pathlib import Path

import numpy as np
import pytest
from gguf.quants import dequantize

from parkway.backends.quant import SUPPORTED
from parkway.errors import BadFile, StartError, Unsupported
from parkway.text import ModelText
from parkway.weights import open_checkpoint, random_checkpoint
from parkway.weights.random_checkpoint import RandomCheckpoint
from parkway.weights.shapes import SHAPES
from tests.checkpoints import LLAMA
from tests.models.runs import cpu_model, step_of

PARAMETERS = {
    "qwen3-0.6b": 0.596e9,
    "qwen3-4b": 4.02e9,
    "qwen3-8b": 8.19e9,
    "qwen2.5-7b": 7.62e9,
    "llama-3.1-8b": 8.03e9,
    "qwen3-30b-a3b": 30.5e9,
    "qwen3.5-4b": 4.2e9,
    "qwen3.6-35b-a3b": 34.7e9,
}
"""As the models' cards say."""
HEADS = {"qwen3.5-4b": 120_599_552, "qwen3.6-35b-a3b": 844_640_768}
"""Of prediction heads, which cards don't count."""


@pytest.fixture(autouse=True)
def small_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_checkpoint, "_POOL_BYTES", 1 << 20)


def tiny(kind: str = "BF16", seed: int = 0, shape: str = "tiny-qwen3") -> RandomCheckpoint:
    return RandomCheckpoint(SHAPES[shape], kind, seed)


@pytest.mark.parametrize("name", PARAMETERS)
def test_shapes_have_the_size_of_their_models(name: str) -> None:
    tensors = open_checkpoint(Path(f"shape:{name}")).tensors
    head = f"blk.{SHAPES[name].layers}."
    sizes = {name: int(np.prod(tensor.shape)) for name, tensor in tensors.items()}
    counted = sum(size for name, size in sizes.items() if not name.startswith(head))
    assert counted == pytest.approx(PARAMETERS[name], rel=0.005)
    assert sum(sizes.values()) - counted == HEADS.get(name, 0)


@pytest.mark.parametrize("kind", SUPPORTED)
def test_values_are_spread_as_one_over_the_root_of_the_columns(kind: str) -> None:
    tensors = tiny(kind).tensors
    for name in ("token_embd.weight", "blk.0.attn_k.weight", "blk.1.ffn_down.weight"):
        tensor = tensors[name]
        values = dequantize(tensor.raw, tensor.type) * np.sqrt(tensor.shape[1])
        assert values.shape == tensor.shape
        assert np.isfinite(values).all()
        assert values.std() == pytest.approx(1, abs=0.1)
        assert abs(values.mean()) < 0.15


@pytest.mark.parametrize("kind", ["BF16", "Q4_K"])
def test_the_seed_decides_every_byte_and_nothing_is_kept(kind: str) -> None:
    one, same, other = tiny(kind), tiny(kind), tiny(kind, seed=1)
    for name, tensor in one.tensors.items():
        assert tensor.raw is not tensor.raw
        assert tensor.raw.tobytes() == same.tensors[name].raw.tobytes() != other.tensors[name].raw.tobytes()
    distinct = {tensor.raw.tobytes() for tensor in one.tensors.values()}
    assert len(distinct) == len(one.tensors)
    assert one.identity == same.identity != other.identity


@pytest.mark.parametrize("shape", [name for name in SHAPES if name.startswith("tiny")])
@pytest.mark.parametrize("kind", SUPPORTED)
def test_logits_are_finite_and_of_sane_size(shape: str, kind: str) -> None:
    path = Path(f"shape:{shape}:{kind}")
    logits = cpu_model(path, activations="int8").run(step_of([(0, position) for position in range(30)]))[0]
    assert 0.3 < logits.std() < 3


def test_a_recipe_mixes_types_and_leaves_small_matrices_as_they_are() -> None:
    tensors = RandomCheckpoint(SHAPES["tiny-qwen35moe"], "Q4_K_M").tensors
    types = {name: tensor.type.name for name, tensor in tensors.items()}
    assert types["blk.3.attn_v.weight"] == types["output.weight"] == types["blk.2.ffn_down_exps.weight"] == "Q6_K"
    assert types["blk.3.attn_output.weight"] == types["blk.1.ffn_down_exps.weight"] == "Q4_K"
    assert types["blk.0.attn_qkv.weight"] == "Q5_K"
    assert types["blk.0.ssm_conv1d.weight"] == types["blk.0.ffn_gate_inp.weight"] == "F32"


def test_llama_3_1_scales_its_frequencies() -> None:
    checkpoint = open_checkpoint(Path("shape:llama-3.1-8b"))
    assert checkpoint.value("llama.rope.scaling.type") == "llama3"


@pytest.mark.parametrize(
    ("path", "kind", "wanted"),
    [
        ("shape:gpt-5", BadFile, "shape:gpt-5: there is no shape 'gpt-5'; there are qwen3-0.6b, "),
        ("shape:tiny-llama:Q8_K", Unsupported, "tiny-llama: random weights of type 'Q8_K' are not made, only BF16, "),
    ],
)
def test_what_is_not_made_is_named(path: str, kind: type[StartError], wanted: str) -> None:
    with pytest.raises(kind) as raised:
        open_checkpoint(Path(path))
    assert str(raised.value).startswith(wanted)


def test_blocks_that_do_not_fit_are_named() -> None:
    with pytest.raises(Unsupported, match=r"token_embd\.weight has rows of 64 values, no multiple of 256"):
        RandomCheckpoint(LLAMA, "Q4_K")


def test_every_token_has_a_text_of_its_own() -> None:
    text = ModelText.from_path(Path("shape:qwen3-0.6b"))
    tokenizer = text.tokenizer
    assert text.name == "qwen3-0.6b-BF16"
    assert tokenizer.vocab_size == 151936
    pieces = {tokenizer.piece_bytes(i) for i in range(tokenizer.vocab_size)}
    assert len(pieces) == tokenizer.vocab_size
    assert b"" not in pieces
    assert tokenizer.decode(text.chat_prompt([{"role": "user", "content": "Grüße"}])) == (
        "<|im_start|>user\nGrüße<|im_end|>\n<|im_start|>assistant\n"
    )
    assert {tokenizer.decode([i]) for i in tokenizer.stop_ids} == {"<|im_end|>", "<|endoftext|>"}
