"""Llama's values: the reference against an independent forward pass, the CPU backend against the reference."""

from pathlib import Path

import numpy as np
import pytest

from parkway.backends.quant import QUANTISED, SUPPORTED
from parkway.backends.reference import Floats
from tests.checkpoints import tiny_llama
from tests.models.runs import CHATS, cpu_model, reference_model, step_of, token_at, whole
from tests.models.whole_sequence import WholeSequence

every_type = pytest.mark.parametrize("types", [*((kind,) for kind in SUPPORTED), SUPPORTED], ids=str)


def by_chat(path: Path) -> Floats:
    """What the independent forward pass says about all rows of CHATS."""
    model = WholeSequence(path)
    chats = [[token_at((chat, position)) for position in range(length)] for chat, length in CHATS]
    return np.concatenate([model.logits(tokens) for tokens in chats])


@every_type
def test_the_reference_computes_what_an_independent_forward_pass_says(types: tuple[str, ...], tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "tiny.gguf", types=types)
    (places,) = whole()
    np.testing.assert_allclose(reference_model(path, "f32")(step_of(places)), by_chat(path), atol=1e-11, rtol=0)


def test_the_reference_decodes_from_its_pages_what_it_computes_at_once(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "tiny.gguf")
    run, chat = reference_model(path, "f32"), [(0, position) for position in range(140)]
    decoded = [run(step_of([place]))[0] for place in chat]
    np.testing.assert_allclose(decoded, reference_model(path, "f32")(step_of(chat)), atol=1e-11, rtol=0)


@every_type
def test_float_activations_compute_what_the_reference_says(types: tuple[str, ...], tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "tiny.gguf", types=types, seed=3)
    (places,) = whole()
    wanted = reference_model(path, "f32")(step_of(places))
    made = cpu_model(path, activations="f32").run(step_of(places))[0][:, : wanted.shape[1]]
    assert np.abs(made - wanted).max() < 2e-5


@pytest.mark.parametrize("types", [*((kind,) for kind in QUANTISED), SUPPORTED], ids=str)
def test_int8_activations_cost_what_rounding_costs(types: tuple[str, ...], tmp_path: Path) -> None:
    """The rounding is there, it is small beside logits of about 1, and it is no larger than the specification's own."""
    path = tiny_llama(tmp_path / "tiny.gguf", types=types)
    (places,) = whole()
    exact, rounded = by_chat(path), reference_model(path, "int8")(step_of(places))
    made = cpu_model(path, activations="int8").run(step_of(places))[0][:, : exact.shape[1]]
    assert 5e-3 < np.abs(made - exact).mean() < 2.5e-2
    assert np.abs(made - exact).mean() < 1.1 * np.abs(rounded - exact).mean()
