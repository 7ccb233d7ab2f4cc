"""How near the default model comes to the float64 reference. Deterministic: bounds, not measurements."""

from pathlib import Path

import pytest

from benchmarks.cpu_accuracy import REACH_AGREEMENT, REACH_ERROR, Accuracy, Row, accuracy, row_errors
from parkway.config import Activations, EngineSettings
from parkway.request import TokenLogprob


def on_cpu(path: Path, activations: Activations) -> Accuracy:
    return accuracy(path, EngineSettings(device="cpu", ctx_size=1024, activations=activations))


@pytest.mark.parametrize("activations", ["int8", "f32"])
def test_the_default_model_is_as_near_as_it_should_be(smollm2: Path, activations: Activations) -> None:
    made = on_cpu(smollm2, activations)
    assert made.rows == 304
    assert made.agreement >= REACH_AGREEMENT
    assert made.error <= REACH_ERROR[activations]


def test_rounding_is_what_lies_between_the_two(smollm2: Path) -> None:
    assert on_cpu(smollm2, "int8").error > 100 * on_cpu(smollm2, "f32").error


def test_errors_are_of_the_references_five_most_probable() -> None:
    row = Row(3, [(7, -1.0), (2, -2.0), (5, -3.0), (1, -3.5), (9, -4.0), (8, -5.0)])
    mine = TokenLogprob(4, 7, -1.5, [(7, -1.5), (2, -2.0), (9, -2.5), (5, -3.25)])
    assert row_errors(row, mine) == [0.5, 0.0, 0.25, 0.25, 1.5]
