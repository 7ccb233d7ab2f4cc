"""Model files that are whole but make no sense, or more sense than is built: one sentence that names what and where."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from parkway.config import EngineSettings
from parkway.errors import BadFile, StartError, Unsupported
from parkway.models import build_model
from parkway.runner.load import load_model
from parkway.weights import open_checkpoint
from parkway.weights.shapes import Shape
from tests.backends.rig import CpuPack
from tests.checkpoints import HEAD_DIM, HEADS, KV_HEADS, QWEN2, QWEN3, WIDTH, tiny_gguf, tiny_llama
from tests.models.altered import altered

NO_HEAD_WIDTH = {"llama.attention.key_length": None, "llama.attention.value_length": None}


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "good.gguf")


def sentence(path: Path, kind: type[StartError]) -> str:
    """What loading the file says, after the file's own name."""
    with pytest.raises(kind) as raised:
        load_model(path, EngineSettings())
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix(f"{path}: ")


def test_a_copy_in_which_nothing_is_different_loads(good: Path) -> None:
    assert load_model(altered(good), EngineSettings()).vocab_size == load_model(good, EngineSettings()).vocab_size


@pytest.mark.parametrize("name", ["token_embd", "blk.1.attn_k", "blk.0.ffn_norm", "output_norm"])
def test_a_missing_tensor_is_named(good: Path, name: str) -> None:
    path = altered(good, tensors={f"{name}.weight": None})
    assert sentence(path, BadFile) == f"tensor {name}.weight is missing"


def test_a_missing_head_means_that_the_embedding_is_the_head(good: Path) -> None:
    family = build_model(open_checkpoint(altered(good, tensors={"output.weight": None})), CpuPack())
    assert family.head is family.embedding


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("blk.0.attn_output", (WIDTH, 2 * WIDTH), (WIDTH, HEADS * HEAD_DIM)),
        ("blk.1.attn_norm", (WIDTH - 32,), (WIDTH,)),
        ("blk.1.ffn_down", (96, 64), (64, 96)),
        ("blk.0.ffn_gate", (2, 96, 64), (96, 64)),
    ],
)
def test_a_wrong_shape_is_named(good: Path, name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    path = altered(good, tensors={f"{name}.weight": np.zeros(shape, np.float32)})
    assert sentence(path, BadFile) == f"tensor {name}.weight has shape {shape}, not {wanted}"


@pytest.mark.parametrize("name", ["token_embd", "blk.1.attn_q", "blk.1.attn_norm", "output_norm", "rope_freqs"])
def test_a_tensor_type_that_is_not_built_is_named(good: Path, name: str) -> None:
    shape = (WIDTH,) if "norm" in name or "rope" in name else (HEADS * HEAD_DIM, WIDTH)
    whole_numbers = np.zeros(shape, np.int32), GGMLQuantizationType.I32
    path = altered(good, tensors={f"{name}.weight": whole_numbers})
    assert sentence(path, Unsupported).startswith(f"tensor {name}.weight has type I32; supported are Q4_0, ")


def test_an_unsupported_architecture_is_named(good: Path) -> None:
    path = altered(good, architecture="mamba")
    assert sentence(path, Unsupported).startswith("architecture 'mamba' is not supported; supported: llama, smollm3, ")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("bert", "an encoder"),
        ("gemma-embedding", "an encoder"),
        ("deepseek2", "multi-head latent attention"),
        ("clip", "a projector"),
    ],
)
def test_a_model_of_another_kind_is_named_for_what_it_is(good: Path, name: str, what: str) -> None:
    told = sentence(altered(good, architecture=name), Unsupported)
    assert told.startswith(f"architecture {name!r} ({what}) is not supported; supported: ")


@pytest.mark.parametrize(("kind", "what"), [("adapter", "an adapter (LoRA)"), ("mmproj", "a projector for images")])
def test_a_file_that_is_no_model_is_named_for_what_it_is(good: Path, kind: str, what: str) -> None:
    assert sentence(altered(good, values={"general.type": kind}), Unsupported).startswith(f"this is {what}")


def test_a_llama_with_experts_is_named(good: Path) -> None:
    told = sentence(altered(good, values={"llama.expert_count": 8}), Unsupported)
    assert told == "a Llama with experts (Mixtral) is not supported"


@pytest.mark.parametrize("name", ["blk.0.attn_q.weight.lora_a", "v.blk.0.attn_q.weight", "blk.1.post_ffw_norm.weight"])
def test_a_tensor_that_has_no_place_is_named(good: Path, name: str) -> None:
    path = altered(good, tensors={name: np.zeros((4, 32), np.float32)})
    assert sentence(path, Unsupported) == f"tensor {name} is not supported: it has no place in this family"


@pytest.mark.parametrize("name", ["blk.0.attn_rot_embd.weight", "rope_factors_short.weight"])
def test_what_only_repeats_the_metadata_is_not_missed(good: Path, name: str) -> None:
    assert load_model(altered(good, tensors={name: np.zeros(8, np.float32)}), EngineSettings())


@pytest.mark.parametrize(
    "key",
    [
        "block_count",
        "embedding_length",
        "feed_forward_length",
        "context_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ],
)
def test_a_missing_key_is_named(good: Path, key: str) -> None:
    path = altered(good, values={f"llama.{key}": None})
    assert sentence(path, BadFile) == f"metadata key llama.{key} is missing"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("embedding_length", "many"),
        ("attention.head_count", 1.5),
        ("attention.head_count_kv", 0),
        ("rope.dimension_count", "all"),
        ("rope.freq_base", "high"),
        ("attention.layer_norm_rms_epsilon", "small"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(good: Path, key: str, value: Any) -> None:
    path = altered(good, values={f"llama.{key}": value})
    assert sentence(path, BadFile) == f"metadata key llama.{key} is {value!r}, not a positive number"


ROTATED = "llama.rope.dimension_count"


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"llama.attention.head_count_kv": 3}, "4 heads can't share 3 KV heads"),
        ({"llama.attention.head_count": 3, "llama.attention.head_count_kv": 2}, "3 heads can't share 2 KV heads"),
        ({"llama.attention.head_count": 6, **NO_HEAD_WIDTH}, "a width of 64 can't be shared by 6 heads"),
        ({ROTATED: HEAD_DIM + 2}, f"{HEAD_DIM + 2} lanes of a head of {HEAD_DIM} can't be rotated in pairs"),
        ({ROTATED: 7}, f"7 lanes of a head of {HEAD_DIM} can't be rotated in pairs"),
    ],
)
def test_counts_that_do_not_go_together_are_named(good: Path, values: dict[str, Any], wanted: str) -> None:
    assert sentence(altered(good, values=values), BadFile) == wanted


@pytest.mark.parametrize("scaling", ["dynamic", "proportional"])
def test_rope_scaling_that_is_not_built_is_named(good: Path, scaling: str) -> None:
    path = altered(good, values={"llama.rope.scaling.type": scaling})
    assert sentence(path, Unsupported) == f"rope scaling '{scaling}' is not supported"


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_rope_scaling_without_its_factor_is_named(good: Path, kind: str) -> None:
    path = altered(good, values={"llama.rope.scaling.type": kind})
    assert sentence(path, BadFile) == "metadata key llama.rope.scaling.factor is missing"


def test_rope_factors_of_the_wrong_number_are_named(good: Path) -> None:
    path = altered(good, tensors={"rope_freqs.weight": np.ones(3, np.float32)})
    assert sentence(path, BadFile) == f"rope_freqs.weight has 3 values, not {HEAD_DIM // 2}"


@pytest.mark.parametrize(
    ("shape", "name"),
    [(QWEN2, "blk.1.attn_k.bias"), (QWEN3, "blk.0.attn_q_norm.weight"), (QWEN3, "blk.1.attn_k_norm.weight")],
)
def test_what_a_family_must_have_is_named(tmp_path: Path, shape: Shape, name: str) -> None:
    path = altered(tiny_gguf(tmp_path / "good.gguf", shape), architecture=shape.architecture, tensors={name: None})
    assert sentence(path, BadFile) == f"tensor {name} is missing"


def test_biases_that_llama_may_have_are_all_or_none(good: Path) -> None:
    path = altered(good, tensors={"blk.0.attn_k.bias": np.zeros(KV_HEADS * HEAD_DIM, np.float32)})
    assert sentence(path, BadFile) == "tensor blk.0.attn_q.bias is missing"


@pytest.mark.parametrize("name", ["blk.1.attn_norm.bias", "blk.0.ffn_up.bias", "output.bias"])
def test_a_bias_that_the_forward_pass_would_leave_out_is_named(good: Path, name: str) -> None:
    path = altered(good, tensors={name: np.zeros(WIDTH, np.float32)})
    wanted = f"tensor {name} is not supported: no bias is, except q, k, v's and their output's in this family"
    assert sentence(path, Unsupported) == wanted


def test_a_vocabulary_that_is_not_the_embeddings_is_named(good: Path) -> None:
    path = altered(good, values={"llama.vocab_size": 300})
    assert sentence(path, BadFile) == "metadata key llama.vocab_size is 300, but the embedding has 262 rows"


def test_heads_of_absurd_width_are_named(good: Path) -> None:
    path = altered(good, values={"llama.attention.key_length": 2**31, "llama.attention.value_length": 2**31})
    assert sentence(path, BadFile) == "heads of 2147483648 lanes make no sense"


def test_layers_of_absurd_number_are_named(good: Path) -> None:
    assert sentence(altered(good, values={"llama.block_count": 2**30}), BadFile) == "1073741824 layers make no sense"


def test_head_widths_that_differ_are_refused(good: Path) -> None:
    values = {"llama.attention.key_length": 16, "llama.attention.value_length": 32}
    assert sentence(altered(good, values=values), Unsupported) == "keys and values of different head widths"
