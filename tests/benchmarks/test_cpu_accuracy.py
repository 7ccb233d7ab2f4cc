"""How near real models come to the float64 references, and to what llama.cpp says. Deterministic: bounds, not
measurements."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.cpu_accuracy import REACH, Accuracy, Row, accuracy, row_errors
from benchmarks.models import MODELS
from parkway.config import Activations, EngineSettings

LLAMA_CPP = Path(__file__).with_name("gemma3_270m_llamacpp.json")
Rated = Callable[[str, Activations], Accuracy]


@pytest.fixture(scope="module")
def rated(request: pytest.FixtureRequest) -> Rated:
    """What a model reaches, computed once."""
    made: dict[tuple[str, Activations], Accuracy] = {}

    def of(name: str, activations: Activations) -> Accuracy:
        if (name, activations) not in made:
            made[name, activations] = on_cpu(request.getfixturevalue(name), REACH[name].reference, activations)
        return made[name, activations]

    return of


def on_cpu(path: Path, reference: Path, activations: Activations) -> Accuracy:
    return accuracy(path, EngineSettings(device="cpu", ctx_size=1024, activations=activations), reference)


@pytest.mark.parametrize("activations", ["int8", "f32"])
@pytest.mark.parametrize(("name", "rows"), [("smollm2", 304), ("gemma3", 384)])
def test_a_real_model_is_as_near_as_it_should_be(rated: Rated, name: str, rows: int, activations: Activations) -> None:
    made = rated(name, activations)
    assert made.rows == rows
    assert made.agreement >= REACH[name].agreement
    assert made.error <= REACH[name].error[activations]


@pytest.mark.parametrize("name", MODELS)
def test_rounding_is_what_lies_between_the_two(rated: Rated, name: str) -> None:
    assert rated(name, "int8").error > 100 * rated(name, "f32").error


def test_gemma_goes_where_llama_cpp_went(gemma3: Path) -> None:
    """llama.cpp's answers, 0.12 from the float64 reference themselves."""
    made = on_cpu(gemma3, LLAMA_CPP, "int8")
    assert made.rows == 5 * 64
    assert made.agreement >= 99
    assert made.error <= 0.14


def test_errors_are_of_the_references_five_most_probable() -> None:
    row = Row(3, [(7, -1.0), (2, -2.0), (5, -3.0), (1, -3.5), (9, -4.0), (8, -5.0)])
    assert row_errors(row, [(7, -1.5), (2, -2.0), (9, -2.5), (5, -3.25)]) == [0.5, 0.0, 0.25, 0.25, 1.5]
