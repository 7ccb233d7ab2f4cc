"""Every family's values: the reference against an independent forward pass, the CPU backend against the reference."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parkway.backends.quant import QUANTISED, SUPPORTED
from parkway.backends.reference import Floats
from parkway.weights.shapes import Shape
from tests.checkpoints import FAMILIES, LLAMA, QWEN2, QWEN3, config_of, tiny_folder, tiny_gguf, tiny_llama
from tests.models.altered import altered
from tests.models.runs import CHATS, cpu_model, logits_of, reference_model, step_of, token_at, whole
from tests.models.whole_sequence import WholeSequence

SHAPES = FAMILIES | {
    "llama tied": replace(LLAMA, tied=True),
    "qwen2 tied": replace(QWEN2, tied=True, kv_heads=4),
    "qwen3 untied": replace(QWEN3, tied=False, heads=3, kv_heads=3, head_dim=64),
}
FLOATS = ("BF16", "F16", "F32")
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
every_type = pytest.mark.parametrize("types", [*((kind,) for kind in SUPPORTED), SUPPORTED], ids=str)


def by_chat(path: Path) -> Floats:
    """What the independent forward pass says about all rows of CHATS."""
    model = WholeSequence(path)
    chats = [[token_at((chat, position)) for position in range(length)] for chat, length in CHATS]
    return np.concatenate([model.logits(tokens) for tokens in chats])


def assert_right(path: Path) -> None:
    """The reference says what the independent forward pass says, and the CPU what the reference says."""
    (places,) = whole()
    exact, wanted = by_chat(path), reference_model(path, "f32")(step_of(places))
    np.testing.assert_allclose(wanted, exact, atol=1e-11, rtol=0)
    made = cpu_model(path, activations="f32").run(step_of(places))[0][:, : wanted.shape[1]]
    assert np.abs(made - wanted).max() < 2e-5


@every_shape
def test_a_gguf_file_computes_what_an_independent_forward_pass_says(shape: Shape, tmp_path: Path) -> None:
    assert_right(tiny_gguf(tmp_path / "tiny.gguf", shape, types=("Q8_0", "F16")))


@pytest.mark.parametrize("shape", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_folder_computes_what_an_independent_forward_pass_says(shape: Shape, tmp_path: Path) -> None:
    assert_right(tiny_folder(tmp_path / "tiny", shape, types=FLOATS, shards=2))


@every_type
def test_every_type_of_weights(types: tuple[str, ...], tmp_path: Path) -> None:
    assert_right(tiny_llama(tmp_path / "tiny.gguf", types=types, seed=3))


@pytest.mark.parametrize("make", [tiny_gguf, tiny_folder])
def test_linear_scaling_of_positions(make: Callable[..., Path], tmp_path: Path) -> None:
    if make is tiny_gguf:
        values = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.5}
        assert_right(altered(tiny_gguf(tmp_path / "tiny.gguf", LLAMA, types=("F32",)), values=values))
    for i, scaling in enumerate(({"type": "linear", "factor": 2.5}, {"rope_type": "linear", "factor": 4})):
        assert_right(tiny_folder(tmp_path / str(i), QWEN2, config={"rope_scaling": scaling}))


@every_shape
@pytest.mark.parametrize("types", [("BF16",), FLOATS], ids=str)
@pytest.mark.parametrize("activations", ["int8", "f32"])
def test_a_folder_and_a_gguf_file_of_the_same_values_give_the_same_bits(
    shape: Shape, types: tuple[str, ...], activations: str, tmp_path: Path
) -> None:
    paths = (
        tiny_gguf(tmp_path / "tiny.gguf", shape, types=types),
        tiny_folder(tmp_path / "tiny", shape, types=types, shards=3),
    )
    one, other = (logits_of(cpu_model(path, activations=activations), whole()) for path in paths)
    assert one == other


CHANGES: dict[str, dict[str, Any]] = {
    "rope base": {"rope_theta": 20000.0},
    "epsilon": {"rms_norm_eps": 2e-5},
    "scaling": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
}


@pytest.mark.parametrize("config", CHANGES.values(), ids=CHANGES.keys())
def test_what_config_json_says_is_seen(config: dict[str, Any], tmp_path: Path) -> None:
    """The comparison above can fail."""
    paths = tiny_folder(tmp_path / "tiny", LLAMA), tiny_folder(tmp_path / "other", LLAMA, config=config)
    one, other = (logits_of(cpu_model(path), whole()) for path in paths)
    assert one[0, 20] != other[0, 20]


def test_newer_and_older_spellings_of_config_json_are_the_same(tmp_path: Path) -> None:
    older = tiny_folder(tmp_path / "older", LLAMA, config={"rope_scaling": {"type": "linear", "factor": 2.0}})
    rope = {"rope_theta": LLAMA.rope_base, "rope_type": "linear", "factor": 2.0}
    changes = {"rope_parameters": rope, "rope_theta": None, "architectures": None, "dtype": "bfloat16"}
    newer = tiny_folder(tmp_path / "newer", LLAMA, config=changes)
    one, other = (logits_of(cpu_model(path), whole()) for path in (older, newer))
    assert one == other


def test_the_width_of_heads_may_be_left_to_the_others(tmp_path: Path) -> None:
    assert config_of(LLAMA)["head_dim"] * LLAMA.heads == LLAMA.width
    paths = tiny_folder(tmp_path / "said", LLAMA), tiny_folder(tmp_path / "left", LLAMA, config={"head_dim": None})
    one, other = (logits_of(cpu_model(path), whole()) for path in paths)
    assert one == other


def test_the_reference_decodes_from_its_pages_what_it_computes_at_once(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path / "tiny.gguf")
    run, chat = reference_model(path, "f32"), [(0, position) for position in range(140)]
    decoded = [run(step_of([place]))[0] for place in chat]
    np.testing.assert_allclose(decoded, reference_model(path, "f32")(step_of(chat)), atol=1e-11, rtol=0)


@pytest.mark.parametrize("types", [*((kind,) for kind in QUANTISED), SUPPORTED], ids=str)
def test_int8_activations_cost_what_rounding_costs(types: tuple[str, ...], tmp_path: Path) -> None:
    """The rounding is there, it is small beside logits of about 1, and it is no larger than the specification's own."""
    path = tiny_llama(tmp_path / "tiny.gguf", types=types)
    (places,) = whole()
    exact, rounded = by_chat(path), reference_model(path, "int8")(step_of(places))
    made = cpu_model(path, activations="int8").run(step_of(places))[0][:, : exact.shape[1]]
    assert 4e-3 < np.abs(made - exact).mean() < 2.5e-2
    assert np.abs(made - exact).mean() < 1.1 * np.abs(rounded - exact).mean()
