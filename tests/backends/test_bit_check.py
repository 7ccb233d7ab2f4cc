"""The bit check on operations whose configurations are known to be sound or not."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from parkway.backends.bit_check import BitCheckFailed, Config, Subject, Verdict, check, check_once

Floats = npt.NDArray[np.float32]
ROWS, WIDTH = 9, 40
VALUES = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
SOUND, ANOTHER, OTHER_ORDER, BY_ROW_COUNT, FEW_ONLY = ((i,) for i in range(5))


def summed(config: Config, rows: slice) -> Floats:
    """The sum of each row, in an order that the configuration says."""
    values = VALUES[rows]
    backwards = config == OTHER_ORDER or (config == BY_ROW_COUNT and len(values) > 2)
    ordered = values[:, ::-1] if backwards else values
    return np.add.accumulate(ordered, axis=1, dtype=np.float32)[:, -1]


@dataclass
class Sums:
    candidates: Sequence[Config]
    name: str = "sum"
    rows: int = ROWS
    output: Callable[[Config, slice], Floats] = summed

    def suits(self, config: Config, rows: int) -> bool:
        return config != FEW_ONLY or rows < ROWS


def equal(a: Floats, b: Floats) -> bool:
    return a.tobytes() == b.tobytes()


def verdict_of(*candidates: Config) -> Verdict:
    subject: Subject = Sums(candidates)
    return check([subject], equal)


def test_sound_configurations_stay() -> None:
    verdict = verdict_of(SOUND, ANOTHER, FEW_ONLY)
    assert not verdict.dropped
    assert verdict.comparisons > 6
    assert verdict.allowed("sum", [SOUND, FEW_ONLY]) == [SOUND, FEW_ONLY]


def test_a_configuration_whose_order_depends_on_the_row_count_is_dropped() -> None:
    assert verdict_of(SOUND, BY_ROW_COUNT).dropped == {"sum": [BY_ROW_COUNT]}


def test_the_measure_is_a_sound_configuration_even_if_an_unsound_one_comes_first() -> None:
    assert verdict_of(BY_ROW_COUNT, SOUND, ANOTHER).dropped == {"sum": [BY_ROW_COUNT]}


def test_a_configuration_with_another_order_than_the_first_is_dropped() -> None:
    assert verdict_of(SOUND, OTHER_ORDER).dropped == {"sum": [OTHER_ORDER]}


def test_with_no_configuration_left_the_operation_is_named() -> None:
    with pytest.raises(BitCheckFailed, match="sum"):
        verdict_of(BY_ROW_COUNT)


def test_a_configuration_that_raises_is_dropped() -> None:
    def output(config: Config, rows: slice) -> Floats:
        if config == ANOTHER:
            raise RuntimeError("no such instruction")
        return summed(config, rows)

    assert check([Sums((ANOTHER, SOUND), output=output)], equal).dropped == {"sum": [ANOTHER]}


def test_dropped_configurations_are_never_offered() -> None:
    verdict = Verdict(1, {"sum": [SOUND]}, 0.0)
    assert verdict.allowed("sum", [SOUND, ANOTHER]) == [ANOTHER]
    with pytest.raises(BitCheckFailed, match="sum"):
        verdict.allowed("sum", [SOUND])


def test_a_verdict_is_kept_and_a_damaged_one_made_again(tmp_path: Path) -> None:
    def subjects() -> list[Subject]:
        asked.append(1)
        return [Sums((SOUND, BY_ROW_COUNT))]

    asked: list[int] = []
    path = tmp_path / "bits" / "key.json"
    made, kept = check_once(path, subjects, equal)
    assert not kept
    again, kept = check_once(path, subjects, equal)
    assert kept
    assert again == made
    assert len(asked) == 1
    path.write_text(json.dumps({"dropped": 7}))
    assert not check_once(path, subjects, equal)[1]
    assert len(asked) == 2
