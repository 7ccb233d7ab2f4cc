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
TOLERANCES = {"f32": 2e-5, "int8": 5e-3}
"""Largest error of a logit; logits have a standard deviation of about 1. int8 differs by its fp16 KV, and by what a
value that falls to the other side of a rounding changes."""


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
@pytest.mark.parametrize("activations", ["f32", "int8"])
def test_the_cpu_computes_what_the_reference_says(types: tuple[str, ...], activations: str, tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "tiny.gguf", types=types, seed=3)
    (places,) = whole()
    wanted = reference_model(path, activations)(step_of(places))
    made = cpu_model(path, activations=activations).run(step_of(places))[0][:, : wanted.shape[1]]
    print(activations, types, np.abs(made - wanted).max())
    assert np.abs(made - wanted).max() < TOLERANCES[activations]


@pytest.mark.parametrize("kind", QUANTISED)
def test_int8_activations_cost_what_rounding_costs(kind: str, tmp_path: Path) -> None:
    """The rounding is there, and it is small beside logits of about 1."""
    path = tiny_llama(tmp_path / "tiny.gguf", types=(kind,))
    (places,) = whole()
    exact = by_chat(path)
    made = cpu_model(path, activations="int8").run(step_of(places))[0][:, : exact.shape[1]]
    print(np.abs(made - exact).mean())
    assert 1e-3 < np.abs(made - exact).mean() < 3e-2
