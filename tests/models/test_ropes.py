"""Kinds of scaling that no saved model shows: against what transformers computes, or the formula."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from parkway.backends import Rope
from parkway.errors import BadFile, Unsupported
from parkway.models.summary import model_facts
from parkway.weights import open_checkpoint
from parkway.weights.rope import yarn_magnitude
from parkway.weights.shapes import Shape
from tests.checkpoints import CTX_TRAIN, HEAD_DIM, LLAMA, LLAMA_3, llama3_factors, tiny_folder, tiny_gguf
from tests.models.altered import altered
from tests.models.referred import Referred

LONG, SHORT = [1.0 + i for i in range(HEAD_DIM // 2)], [1.0 + i / 8 for i in range(HEAD_DIM // 2)]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
LONGROPE = {"rope_type": "longrope", "long_factor": LONG, "short_factor": SHORT}
SCALINGS: dict[str, dict[str, Any]] = {
    "yarn": YARN,
    "yarn, not truncated": {**YARN, "truncate": False},
    "yarn, other turns": {**YARN, "beta_fast": 4.0, "beta_slow": 2.0},
    "yarn, a factor of its own": {**YARN, "attention_factor": 1.5},
    "yarn, mscale": {**YARN, "mscale": 0.7, "mscale_all_dim": 0.3},
    "longrope, extended": {**LONGROPE, "original_max_position_embeddings": 512},
    "longrope, not extended": {**LONGROPE, "original_max_position_embeddings": CTX_TRAIN},
    "longrope, a factor of its own": {**LONGROPE, "original_max_position_embeddings": 512, "attention_factor": 1.3},
}


def rope(path: Path, scaling: dict[str, Any]) -> Rope:
    folder = tiny_folder(path / "tiny", LLAMA, config={"rope_scaling": scaling})
    (made,) = Referred(folder).model.config.ropes
    return made


def rope_of_gguf(path: Path, shape: Shape = LLAMA, **said: Any) -> Rope:
    """`said`: of `rope.scaling`, and `scale_linear`."""
    values = {f"llama.rope.{'' if key == 'scale_linear' else 'scaling.'}{key}": value for key, value in said.items()}
    (made,) = Referred(altered(tiny_gguf(path / "tiny.gguf", shape), values=values)).model.config.ropes
    return made


@pytest.mark.parametrize("scaling", SCALINGS.values(), ids=SCALINGS.keys())
def test_frequencies_and_magnitude_are_those_of_transformers(scaling: dict[str, Any], tmp_path: Path) -> None:
    made = rope(tmp_path, scaling)
    config = LlamaConfig(
        head_dim=HEAD_DIM,
        max_position_embeddings=CTX_TRAIN,
        rope_parameters={**scaling, "rope_theta": LLAMA.rope_base},
    )
    wanted, magnitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, torch.device("cpu"), seq_len=CTX_TRAIN)
    frequencies = made.base ** (-np.arange(0, made.dims, 2) / made.dims) / np.asarray(made.factors)
    np.testing.assert_allclose(frequencies, wanted.numpy(), rtol=1e-6)
    assert made.magnitude == pytest.approx(magnitude, rel=1e-7)


def test_sections_of_positions_are_one_for_text(tmp_path: Path) -> None:
    made = rope(tmp_path, {"type": "mrope", "mrope_section": [2, 3, 3]})
    assert (made.base, made.magnitude, np.unique(np.asarray(made.factors)).tolist()) == (LLAMA.rope_base, 1.0, [1.0])


def test_a_fixed_alpha_raises_the_base(tmp_path: Path) -> None:
    made = rope(tmp_path, {"type": "dynamic", "alpha": 8.0, "factor": 1.0})
    assert made.base == pytest.approx(LLAMA.rope_base * 8.0 ** (HEAD_DIM / (HEAD_DIM - 2)))


def test_a_scaling_that_grows_with_the_chat_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="rope scaling 'dynamic' is not supported"):
        rope(tmp_path, {"type": "dynamic", "factor": 2.0})


@pytest.mark.parametrize("factor", ["x", {"factor": 1}, 10**400], ids=["text", "object", "huge"])
def test_a_factor_that_is_not_read_may_be_anything(factor: Any, tmp_path: Path) -> None:
    scaling = {"type": "dynamic", "alpha": 8.0, "factor": factor}
    told = model_facts(open_checkpoint(tiny_folder(tmp_path / "tiny", LLAMA, config={"rope_scaling": scaling})))
    assert told["rope"].endswith("; scaling dynamic")


@pytest.mark.parametrize("factors", [LONG[:-1], ["a"] * (HEAD_DIM // 2), 3, [[1.0]]])
def test_factors_that_do_not_fit_are_named(tmp_path: Path, factors: Any) -> None:
    scaling = {**LONGROPE, "long_factor": factors, "original_max_position_embeddings": 512}
    folder = tiny_folder(tmp_path / "tiny", LLAMA, config={"rope_scaling": scaling})
    assert model_facts(open_checkpoint(folder))["served"].startswith(("no: longrope has", "no: its rope scaling makes"))


OLDER: dict[str, tuple[dict[str, Any], float]] = {
    "the older name": ({"scale_linear": 4.0}, 4),
    "the older name, a whole number": ({"scale_linear": 4}, 4),
    "the older name, with the kind": ({"scale_linear": 4.0, "type": "linear"}, 4),
    "the newer name goes first": ({"scale_linear": 4.0, "factor": 2.0}, 2),
    "the newer name, without the kind": ({"factor": 2.0}, 2),
    "1": ({"scale_linear": 1.0}, 1),
    "0": ({"scale_linear": 0.0}, 1),
    "newer 1": ({"factor": 1.0}, 1),
    "newer 0": ({"factor": 0.0}, 1),
    "none, and that is said": ({"type": "none", "factor": 2.0, "scale_linear": 4.0}, 1),
}


@pytest.mark.parametrize(("said", "factor"), OLDER.values(), ids=OLDER.keys())
def test_a_factor_of_no_kind_is_linear(said: dict[str, Any], factor: float, tmp_path: Path) -> None:
    made = rope_of_gguf(tmp_path, **said)
    assert np.asarray(made.factors).tolist() == [factor] * (HEAD_DIM // 2)
    assert (made.base, made.magnitude) == (LLAMA.rope_base, 1.0)


def test_a_factor_of_no_kind_only_repeats_stored_factors(tmp_path: Path) -> None:
    made = rope_of_gguf(tmp_path, LLAMA_3, factor=8.0)
    assert np.asarray(made.factors).tolist() == llama3_factors(LLAMA_3).tolist()


def test_the_older_name_beside_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"llama\.rope\.scale_linear beside rope scaling 'yarn' is not supported"):
        rope_of_gguf(tmp_path, scale_linear=4.0, type="yarn", factor=4.0)


def test_the_older_name_beside_long_factors_is_refused(tmp_path: Path) -> None:
    tensors = {f"rope_factors_{name}.weight": np.ones(HEAD_DIM // 2, np.float32) for name in ("long", "short")}
    path = altered(tiny_gguf(tmp_path / "tiny.gguf", LLAMA), values={"llama.rope.scale_linear": 4.0}, tensors=tensors)
    with pytest.raises(Unsupported, match="beside rope scaling 'longrope' is not supported"):
        Referred(path)


def test_an_older_factor_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"llama\.rope\.scale_linear is -2\.0, not a positive number"):
        rope_of_gguf(tmp_path, scale_linear=-2.0)


def test_a_factor_of_the_older_name_is_told(tmp_path: Path) -> None:
    path = altered(tiny_gguf(tmp_path / "tiny.gguf", LLAMA), values={"llama.rope.scale_linear": 4.0})
    assert model_facts(open_checkpoint(path))["rope"].endswith("; scaling linear, factor 4")


@pytest.mark.parametrize(
    ("said", "magnitude"),
    [
        ({}, yarn_magnitude(4)),
        ({"attn_factor": 1.0}, yarn_magnitude(4)),
        ({"attn_factor": 0.5}, yarn_magnitude(4) * 0.5),
        ({"attn_factor": 0.5, "yarn_attn_factor": 1.5}, 0.75),
    ],
    ids=str,
)
def test_an_attention_factor_multiplies_what_yarn_has(said: dict[str, Any], magnitude: float, tmp_path: Path) -> None:
    made = rope_of_gguf(tmp_path, type="yarn", factor=4.0, original_context_length=512, **said)
    assert made.magnitude == magnitude
