"""Metadata that asks for what no forward pass of the family does: refused by name, unless it asks for nothing."""

from pathlib import Path
from typing import Any

import pytest

from parkway.backends.reference import ReferencePack
from parkway.errors import Unsupported
from parkway.models import build_model
from parkway.weights import open_checkpoint
from tests.models.altered import altered
from tests.models.converted import ARCHITECTURES, as_gguf
from tests.models.transformers_models import FAMILIES, Tiny


def with_values(family: str, values: dict[str, Any], at: Path) -> Path:
    tiny = Tiny(FAMILIES[family])
    good = as_gguf(tiny, tiny.save(at / "tiny"), at / "good.gguf")
    architecture = ARCHITECTURES[tiny.family.name]
    named = {f"{architecture}.{key}": value for key, value in values.items()}
    return altered(good, architecture=architecture, values=named)


def refusal(family: str, values: dict[str, Any], at: Path) -> str:
    path = with_values(family, values, at)
    with pytest.raises(Unsupported) as raised:
        build_model(open_checkpoint(path), ReferencePack())
    return str(raised.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("values", [{}, {"attention.sliding_window_pattern": [True, False, True]}], ids=str)
def test_olmo_3_is_named(values: dict[str, Any], tmp_path: Path) -> None:
    told = refusal("olmo2", {"attention.sliding_window": 4096, **values}, tmp_path)
    assert told == "OLMo 3 (olmo2 with windows) is not supported"


def test_an_olmo_2_without_a_window_is_served(tmp_path: Path) -> None:
    path = with_values("olmo2", {"attention.sliding_window": 0}, tmp_path)
    assert build_model(open_checkpoint(path), ReferencePack()).config.windows == (0,)


ASKED: dict[str, tuple[str, dict[str, Any], str]] = {
    "not causal": ("llama", {"attention.causal": False}, "llama.attention.causal = False"),
    "clamped": ("olmo2", {"attention.clamp_kqv": 8.0}, "olmo2.attention.clamp_kqv = 8.0"),
    "alibi": ("gemma3", {"attention.max_alibi_bias": 8.0}, "gemma3.attention.max_alibi_bias = 8.0"),
    "warmer far away": ("phi3", {"attention.temperature_scale": 0.5}, "phi3.attention.temperature_scale = 0.5"),
    "scaled experts": ("qwen3moe", {"expert_weights_scale": 2.5}, "qwen3moe.expert_weights_scale = 2.5"),
    "of a hybrid": ("qwen35moe", {"expert_weights_scale": 2.5}, "qwen35moe.expert_weights_scale = 2.5"),
    "sigmoid": ("qwen3next", {"expert_gating_func": 2}, "qwen3next.expert_gating_func = 2"),
    "of those chosen": ("qwen3moe", {"expert_gating_func": 3}, "qwen3moe.expert_gating_func = 3"),
    "a clamp": ("gpt-oss", {"swiglu_clamp_exp": 10.0}, "gpt-oss.swiglu_clamp_exp = 10.0"),
    "no clamp": ("gpt-oss", {"swiglu_clamp_exp": 0.0}, "gpt-oss.swiglu_clamp_exp = 0.0"),
    "a clamp of a layer": ("gpt-oss", {"swiglu_clamp_exp": [7.0, 10.0, 7.0]}, "gpt-oss.swiglu_clamp_exp = 10.0"),
    "a clamp that there is not": ("qwen3moe", {"swiglu_clamp_exp": 7.0}, "qwen3moe.swiglu_clamp_exp = 7.0"),
    "not turned": ("granite", {"rope.scaling.finetuned": False}, "granite.rope.scaling.finetuned = False"),
}


@pytest.mark.parametrize(("family", "values", "named"), ASKED.values(), ids=ASKED.keys())
def test_what_a_forward_pass_would_leave_out_is_named(
    family: str, values: dict[str, Any], named: str, tmp_path: Path
) -> None:
    assert refusal(family, values, tmp_path) == f"metadata key {named} is not supported"


NOTHING: dict[str, Any] = {
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.temperature_scale": 1.0,
    "expert_weights_scale": 1.0,
    "expert_gating_func": 1,
}
SERVED: dict[str, tuple[str, dict[str, Any]]] = {
    "all that asks for nothing": ("qwen3moe", {**NOTHING, "swiglu_clamp_exp": 0.0, "rope.scaling.finetuned": False}),
    "0": ("qwen3next", {"attention.temperature_scale": 0.0, "expert_weights_scale": 0.0, "expert_gating_func": 0}),
    "gpt-oss": ("gpt-oss", {**NOTHING, "expert_gating_func": 3, "swiglu_clamp_exp": 7.0}),
    "gpt-oss, by layers": ("gpt-oss", {"swiglu_clamp_exp": [7.0, 7.0, 7.0]}),
    "granite": ("granite", {"rope.scaling.finetuned": True}),
}


@pytest.mark.parametrize(("family", "values"), SERVED.values(), ids=SERVED.keys())
def test_what_asks_for_nothing_is_served(family: str, values: dict[str, Any], tmp_path: Path) -> None:
    build_model(open_checkpoint(with_values(family, values, tmp_path)), ReferencePack())
