"""Kinds of scaling that no saved model shows: against what transformers computes, or the formula."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from parkway.backends import Rope
from parkway.errors import Unsupported
from parkway.models.summary import model_facts
from parkway.weights import open_checkpoint
from tests.checkpoints import CTX_TRAIN, HEAD_DIM, LLAMA, tiny_folder
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
