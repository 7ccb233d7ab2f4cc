"""What is told about a model's layers."""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from parkway.models.summary import model_facts
from parkway.weights import open_checkpoint
from tests.checkpoints import LLAMA, tiny_gguf, tiny_llama
from tests.models.altered import altered
from tests.models.converted import as_gguf
from tests.models.transformers_models import FAMILIES, Tiny

TOLD = {
    "llama 3": ("3 attention to all", "base 500000; scaling llama3, factor 8"),
    "mistral": ("3 attention to 24", "base 10000; scaling none"),
    "smollm3": ("4 attention to all; 1 attention to all, not told positions", "base 2e+06; scaling none"),
    "gemma3": ("6 attention to 20; 1 attention to all", "base 10000, 1e+06; scaling linear, factor 8"),
    "phi3 long": ("3 attention to all", "base 10000; scaling longrope"),
    "gpt-oss": ("2 attention to 16; 1 attention to all", "base 150000; scaling yarn, factor 32"),
    "qwen35moe": ("3 delta net; 1 attention to all", "base 10000; scaling none"),
}


@pytest.mark.parametrize("name", TOLD)
def test_layers_and_positions(name: str, tmp_path: Path) -> None:
    told = model_facts(open_checkpoint(Tiny(FAMILIES[name]).save(tmp_path / "tiny")))
    assert (told["layers by kind"], told["rope"]) == TOLD[name]
    assert told["served"] == "yes"
    if name == "qwen35moe":
        assert told["experts"] == "8, 3 a token, 32 hidden values each"
        assert told["delta nets"] == "2 heads of q and k, 4 of v, of 16 values"


def test_what_is_not_served_says_why(tmp_path: Path) -> None:
    path = altered(tiny_llama(tmp_path / "good.gguf"), architecture="bert")
    assert model_facts(open_checkpoint(path))["served"].startswith("no: architecture 'bert' (an encoder) is not")
    path = altered(tiny_gguf(tmp_path / "good.gguf", LLAMA), tensors={"output_norm.weight": None})
    assert model_facts(open_checkpoint(path)) == {"served": "no: tensor output_norm.weight is missing"}


@pytest.mark.parametrize("name", ["token_embd", "blk.0.ffn_down", "blk.1.attn_norm"])
def test_a_type_that_is_not_built_is_not_served(name: str, tmp_path: Path) -> None:
    good = tiny_llama(tmp_path / "good.gguf")
    zeros = np.zeros(open_checkpoint(good).tensors[f"{name}.weight"].shape, np.int32)
    path = altered(good, tensors={f"{name}.weight": (zeros, GGMLQuantizationType.I32)})
    assert model_facts(open_checkpoint(path))["served"].startswith(f"no: tensor {name}.weight has type I32; supported")


def test_experts_of_a_type_that_is_not_built_are_not_served(tmp_path: Path) -> None:
    tiny = Tiny(FAMILIES["qwen3moe"])
    good = as_gguf(tiny, tiny.save(tmp_path / "tiny"), tmp_path / "good.gguf")
    zeros = np.zeros((8, 64, 32), np.int32), GGMLQuantizationType.I32
    path = altered(good, architecture="qwen3moe", tensors={"blk.0.ffn_down_exps.weight": zeros})
    assert model_facts(open_checkpoint(path))["served"].startswith("no: tensor blk.0.ffn_down_exps.weight has type I32")


def test_factors_in_a_tensor_are_told(tmp_path: Path) -> None:
    tiny = Tiny(FAMILIES["llama 3"])
    path = as_gguf(tiny, tiny.save(tmp_path / "tiny"), tmp_path / "tiny.gguf")
    assert model_facts(open_checkpoint(path))["rope"] == "base 500000; scaling as rope_freqs.weight has it"
