"""Layouts of some families' own files that `save_pretrained` doesn't write: MXFP4 experts, models with other senses,
prediction heads, projections in other pieces, configs that are silent."""

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from parkway.errors import BadFile
from parkway.models.config import Config
from parkway.models.summary import model_facts
from parkway.weights import open_checkpoint
from tests.checkpoints import write_weights
from tests.models.converted import as_gguf
from tests.models.prediction_heads import with_head
from tests.models.referred import Referred
from tests.models.transformers_models import FAMILIES, GEMMA, VOCABULARY, Family, Floats, Tiny
from tests.models.whole_sequence import read_safetensors

TOKENS = [(i * 31 + i * i // 7) % VOCABULARY for i in range(70)]
WEIGHTS = "model.safetensors"
MXFP4 = {"quantization_config": {"quant_method": "mxfp4"}}


@pytest.fixture(scope="module")
def gpt_oss() -> Tiny:
    return Tiny(FAMILIES["gpt-oss"], seed=3)


def rewritten(folder: Path, tensors: Mapping[str, Any], **config: Any) -> Path:
    """The folder with these tensors: float32 where they are floats, bytes otherwise."""
    raw = {
        name: ("U8", values.shape, values.tobytes())
        if values.dtype == np.uint8
        else ("F32", values.shape, values.astype(np.float32).tobytes())
        for name, values in tensors.items()
    }
    write_weights(folder, raw)
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(said | config))
    return folder


def with_mxfp4(tiny: Tiny, tensors: dict[str, Any]) -> dict[str, Any]:
    """Random blocks in place of the experts, whose values transformers' own decoder puts into `tiny`."""
    random, found = np.random.default_rng(0), dict(tensors)
    state = dict(tiny.model.named_parameters())
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inputs, outputs = found.pop(name).shape
        blocks = random.integers(0, 256, (experts, outputs, inputs // 32, 16), np.uint8)
        scales = random.integers(122, 126, blocks.shape[:-1]).astype(np.uint8)
        found |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        decoded = convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32)
        state[name].data.copy_(decoded)
    return found


def test_mxfp4_experts_of_gpt_oss(gpt_oss: Tiny, tmp_path: Path) -> None:
    folder = gpt_oss.save(tmp_path / "tiny")
    tensors = with_mxfp4(gpt_oss, read_safetensors(folder / WEIGHTS))
    logits, _ = gpt_oss.run(TOKENS)
    made, _ = Referred(rewritten(folder, tensors, **MXFP4)).whole(TOKENS)
    np.testing.assert_allclose(made, logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["gate_up_proj", "down_proj"])
def test_experts_without_their_biases_are_named(gpt_oss: Tiny, tmp_path: Path, name: str) -> None:
    folder = gpt_oss.save(tmp_path / "tiny")
    missing = f"model.layers.1.mlp.experts.{name}_bias"
    tensors = {key: values for key, values in read_safetensors(folder / WEIGHTS).items() if key != missing}
    told = model_facts(open_checkpoint(rewritten(folder, tensors)))
    assert re.fullmatch(r"no: tensor blk\.1\.ffn_(gate|down)_exps\.0\.bias is missing", told["served"])


@pytest.mark.parametrize("name", ["self_attn.o_proj", "mlp.router"])
def test_other_biases_that_gpt_oss_must_have_are_named(gpt_oss: Tiny, tmp_path: Path, name: str) -> None:
    folder = gpt_oss.save(tmp_path / "tiny")
    missing = f"model.layers.1.{name}.bias"
    tensors = {key: values for key, values in read_safetensors(folder / WEIGHTS).items() if key != missing}
    told = model_facts(open_checkpoint(rewritten(folder, tensors)))
    assert told["served"] == f"no: tensor {missing} is missing"


def test_mxfp4_experts_without_their_scales_are_named(gpt_oss: Tiny, tmp_path: Path) -> None:
    folder = gpt_oss.save(tmp_path / "tiny")
    tensors = with_mxfp4(Tiny(FAMILIES["gpt-oss"]), read_safetensors(folder / WEIGHTS))
    missing = "model.layers.1.mlp.experts.down_proj_scales"
    rewritten(folder, {name: values for name, values in tensors.items() if name != missing}, **MXFP4)
    with pytest.raises(BadFile, match=r"layers\.1\.mlp\.experts\.down_proj_blocks .* no scales that fit"):
        Referred(folder)


@pytest.mark.parametrize("name", ["qwen35", "qwen35moe", "gemma3"])
def test_the_text_of_a_model_that_sees(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In the layout of the hub: text under model.language_model, its config under text_config, a prediction head."""
    tiny = Tiny(FAMILIES[name], seed=4)
    folder = tiny.save(tmp_path / "tiny")
    wanted, _ = Referred(folder).whole(TOKENS)
    if name != "gemma3":
        with_head(tiny, folder)
    inner = json.loads((folder / "config.json").read_text())
    tensors = {
        own.replace("model.", "model.language_model.", 1): values
        for own, values in read_safetensors(folder / WEIGHTS).items()
    }
    tensors["model.visual.blocks.0.attn.qkv.weight"] = np.zeros((4, 4))
    del inner["architectures"]
    outer = {
        "architectures": [f"{tiny.family.name}ForConditionalGeneration"],
        "text_config": inner,
        "vision_config": {"num_hidden_layers": 27, "hidden_size": 5},
        "tie_word_embeddings": tiny.config.tie_word_embeddings,
        "eos_token_id": [5, 7],
    }
    (folder / "config.json").write_text("{}")
    with caplog.at_level(logging.INFO):
        made, _ = Referred(rewritten(folder, tensors, **outer)).whole(TOKENS)
    np.testing.assert_array_equal(made, wanted)
    assert open_checkpoint(folder).value("tokenizer.huggingface.eos_token_id") == [2, 5, 7]
    assert "1 tensors for images or sound are not used" in caplog.text
    assert ("the prediction head is kept" in caplog.text) == (name != "gemma3")


def test_a_prediction_head_changes_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tiny = Tiny(FAMILIES["qwen35"], seed=4)
    folder = tiny.save(tmp_path / "tiny")
    wanted, _ = Referred(folder).whole(TOKENS)
    path = as_gguf(tiny, with_head(tiny, folder), tmp_path / "tiny.gguf")
    with caplog.at_level(logging.INFO):
        made, _ = Referred(path).whole(TOKENS)
    np.testing.assert_allclose(made, wanted, atol=1e-11, rtol=0)
    assert "the prediction head is kept" in caplog.text


def test_experts_of_one_tensor_each(tmp_path: Path) -> None:
    """As transformers holds them in memory, and some folders have them."""
    tiny = Tiny(FAMILIES["qwen3moe"], seed=5)
    folder = tiny.save(tmp_path / "tiny")
    wanted, _ = Referred(folder).whole(TOKENS)
    own = {name: values.numpy() for name, values in tiny.state.items()}
    assert any(name.endswith("experts.gate_up_proj") for name in own)
    made, _ = Referred(rewritten(folder, own)).whole(TOKENS)
    np.testing.assert_array_equal(made, wanted)


def test_gates_and_ups_of_experts_in_one_tensor_of_a_gguf_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Tiny(FAMILIES["qwen35moe"], seed=5)
    folder = tiny.save(tmp_path / "tiny")
    wanted, _ = Referred(folder).whole(TOKENS)
    add, gates = GGUFWriter.add_tensor, {}

    def fusing(writer: GGUFWriter, name: str, tensor: Any, **how: Any) -> None:
        if "_gate_exps" in name:
            gates[name.replace("_gate_exps", "_up_exps")] = tensor
        elif "_up_exps" in name:
            both = np.concatenate([gates.pop(name), tensor], axis=1)
            add(writer, name.replace("_up_exps", "_gate_up_exps"), both, **how)
        else:
            add(writer, name, tensor, **how)

    monkeypatch.setattr(GGUFWriter, "add_tensor", fusing)
    made, _ = Referred(as_gguf(tiny, folder, tmp_path / "tiny.gguf")).whole(TOKENS)
    np.testing.assert_allclose(made, wanted, atol=1e-11, rtol=0)
    assert not gates


def config_of(folder: Path) -> Config:
    return Referred(folder).model.config


def test_a_gemma_3_config_that_is_silent(tmp_path: Path) -> None:
    """As the hub's are: what transformers takes then."""
    said = {**GEMMA, "query_pre_attn_scalar": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
    tiny = Tiny(Family("Gemma3", {**said, "num_hidden_layers": 6, "rms_norm_eps": 1e-6, "sliding_window": 512}))
    folder = tiny.save(tmp_path / "tiny")
    wanted, full = Referred(folder).whole(TOKENS)[0], config_of(folder)
    kept = ("architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "sliding_window")
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({key: said[key] for key in kept}))
    silent = config_of(folder)
    np.testing.assert_array_equal(Referred(folder).whole(TOKENS)[0], wanted)
    assert [how.window for how in silent.attention] == [how.window for how in full.attention] == [*[512] * 5, 0]
    assert [rope.base for rope in silent.ropes] == [rope.base for rope in full.ropes] == [1e4, 1e6]
    assert silent.ctx_train == 131072


def test_a_null_is_no_silence(tmp_path: Path) -> None:
    """No caps and no windows, where the family's usual value would be some."""
    none = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    tiny = Tiny(Family("Gemma2", {**GEMMA, **none}))
    folder = tiny.save(tmp_path / "tiny")
    logits, _ = tiny.run(TOKENS)
    made, _ = Referred(folder).whole(TOKENS)
    np.testing.assert_allclose(made, logits, atol=1e-11, rtol=0)
    said = json.loads((folder / "config.json").read_text()) | none | {"sliding_window": None, "layer_types": None}
    (folder / "config.json").write_text(json.dumps(said))
    config = config_of(folder)
    assert (config.windows, config.scales.logit_cap, config.attention[0].soft_cap) == ((0,), 0, 0)


def test_the_values_of_one_number_are_seen(tmp_path: Path) -> None:
    """The comparisons above can fail."""
    tiny = Tiny(FAMILIES["qwen35"], seed=4)
    folder = tiny.save(tmp_path / "tiny")
    wanted, _ = Referred(folder).whole(TOKENS)
    tensors: dict[str, Floats] = read_safetensors(folder / WEIGHTS)
    tensors["model.layers.0.linear_attn.dt_bias"] = tensors["model.layers.0.linear_attn.dt_bias"] + 0.01
    made, _ = Referred(rewritten(folder, tensors)).whole(TOKENS)
    assert np.abs(made - wanted).max() > 1e-4
