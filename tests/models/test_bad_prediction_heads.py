"""Prediction heads that are not whole, or more than is built: one sentence that names the tensor."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from parkway.backends.reference import ReferencePack
from parkway.errors import BadFile, StartError, Unsupported
from parkway.models import build_model
from parkway.weights import open_checkpoint, random_checkpoint
from parkway.weights.checkpoint import RawTensor
from parkway.weights.random_checkpoint import RandomCheckpoint
from parkway.weights.shapes import SHAPES
from tests.models.altered import altered
from tests.models.converted import as_gguf
from tests.models.prediction_heads import WEIGHTS, holding, with_head
from tests.models.transformers_models import FAMILIES, Tiny
from tests.models.whole_sequence import read_safetensors


@pytest.fixture
def small(tmp_path: Path) -> Path:
    tiny = Tiny(FAMILIES["qwen35"])
    return with_head(tiny, tiny.save(tmp_path / "small"))


def refusal(path: Path, kind: type[StartError] = BadFile) -> str:
    with pytest.raises(kind) as raised:
        build_model(open_checkpoint(path), ReferencePack())
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("family", ["qwen3next", "qwen35", "qwen35moe"])
def test_a_tensor_that_is_missing_or_of_a_wrong_shape_is_named(family: str, tmp_path: Path) -> None:
    tiny = Tiny(FAMILIES[family])
    copy = with_head(tiny, tiny.save(tmp_path / "copy"))
    tensors = read_safetensors(copy / WEIGHTS)
    for name in [name for name in tensors if name.startswith("mtp.") and not name.endswith("_proj")]:
        if ".experts." in name and ".experts.7." not in name:
            continue
        holding(copy, {own: values for own, values in tensors.items() if own != name})
        assert refusal(copy) == f"tensor {name} is missing"
        holding(copy, {**tensors, name: np.zeros((3, 32))})
        assert refusal(copy).startswith(f"tensor {name} has shape (3, 32), not ")


@pytest.mark.parametrize(
    "name", ["nextn.eh_proj", "nextn.hnorm", "nextn.shared_head_norm", "attn_q", "attn_k_norm", "ffn_up", "attn_norm"]
)
def test_they_are_named_in_a_gguf_file(small: Path, name: str) -> None:
    path = as_gguf(Tiny(FAMILIES["qwen35"]), small, small.with_name("small.gguf"))
    whole = f"blk.4.{name}.weight"
    assert refusal(altered(path, architecture="qwen35", tensors={whole: None})) == f"tensor {whole} is missing"
    wrong = altered(path, architecture="qwen35", tensors={whole: np.zeros((3, 32), np.float32)})
    assert refusal(wrong).startswith(f"tensor {whole} has shape (3, 32), not ")


def test_what_has_no_place_in_it_is_named(small: Path) -> None:
    tensors = read_safetensors(small / WEIGHTS)
    others = ("mtp.layers.1.input_layernorm.weight", "mtp.fc.bias", "model.layers.4.input_layernorm.weight")
    for name in (*others, "mtp.layers.0.linear_attn.A_log"):
        told = refusal(holding(small, {**tensors, name: np.zeros(64)}), Unsupported)
        assert told.startswith(f"tensor {name} is not supported: ")
    path = as_gguf(Tiny(FAMILIES["qwen35"]), holding(small, tensors), small.with_name("small.gguf"))
    values = {"qwen35.block_count": 6, "qwen35.nextn_predict_layers": 2}
    told = refusal(altered(path, architecture="qwen35", values=values), Unsupported)
    assert told == "a prediction head of 2 layers is not supported, only of one"


def test_a_layer_that_a_file_does_not_count_is_no_head(small: Path) -> None:
    path = as_gguf(Tiny(FAMILIES["qwen35"]), small, small.with_name("small.gguf"))
    values = {"qwen35.block_count": 4, "qwen35.nextn_predict_layers": None}
    told = refusal(altered(path, architecture="qwen35", values=values), Unsupported)
    assert told.startswith("tensor blk.4.attn_k.weight is not supported: it has no place in this family")


def test_a_projection_whose_halves_are_no_whole_blocks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 2 x 128 values in blocks of 256."""
    monkeypatch.setattr(random_checkpoint, "_POOL_BYTES", 1 << 20)
    shape = replace(SHAPES["tiny-qwen35"], width=128)
    checkpoint = RandomCheckpoint(shape)
    raw = np.zeros((128, 144), np.uint8)
    name = "blk.4.nextn.eh_proj.weight"
    checkpoint.tensors = {**checkpoint.tensors, name: RawTensor(name, (128, 256), GGMLQuantizationType.Q4_K, raw)}
    with pytest.raises(Unsupported, match=f"tensor {name}: 128 of its columns are no whole blocks of Q4_K"):
        build_model(checkpoint, ReferencePack())
