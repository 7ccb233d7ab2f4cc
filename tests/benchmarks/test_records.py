"""Records of figures: what is kept, replaced and refused."""

import json
import math
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from benchmarks import records

GIVEN: dict[str, Any] = {
    "figure": "decode, 1 stream",
    "value": 2.5,
    "unit": "x llama.cpp",
    "better": "higher",
    "reach": 2.0,
    "command": "python -m benchmarks.x",
}


def test_a_record_has_every_field(tmp_path: Path) -> None:
    records.write(tmp_path / "results" / "cpu.json", **GIVEN)
    (kept,) = json.loads((tmp_path / "results" / "cpu.json").read_text())
    assert list(kept) == ["figure", "value", "unit", "better", "reach", "command", "machine", "versions", "date"]
    assert {name: kept[name] for name in GIVEN} == GIVEN
    assert kept["machine"] == records.machine()
    assert kept["versions"] == records.versions()
    assert kept["date"] == date.today().isoformat()


def test_a_figure_replaces_its_own_record_and_the_order_stays(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    for figure, value in (("b", 1.0), ("c", 2.0), ("a", 3.0), ("b", 4.0)):
        records.write(path, **GIVEN | {"figure": figure, "value": value})
    assert [(record.figure, record.value) for record in records.read(path)] == [("a", 3.0), ("b", 4.0), ("c", 2.0)]
    assert [kept.name for kept in tmp_path.iterdir()] == ["cpu.json"]


@pytest.mark.parametrize(
    ("better", "value", "reached"),
    [("higher", 2.0, True), ("higher", 1.99, False), ("lower", 2.0, True), ("lower", 2.01, False)],
)
def test_reached(tmp_path: Path, better: str, value: float, reached: bool) -> None:
    assert records.write(tmp_path / "cpu.json", **GIVEN | {"better": better, "value": value}).reached is reached


@pytest.mark.parametrize("field", ["value", "reach"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_must_be_finite(tmp_path: Path, field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{field} must be finite"):
        records.write(tmp_path / "cpu.json", **GIVEN | {field: value})
    assert not (tmp_path / "cpu.json").exists()


@pytest.mark.parametrize("field", ["figure", "unit", "command"])
def test_texts_must_say_something(tmp_path: Path, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must not be empty"):
        records.write(tmp_path / "cpu.json", **GIVEN | {field: " "})


@pytest.mark.parametrize(("field", "wrong"), [("value", "2.5"), ("better", "larger"), ("date", "today")])
def test_a_file_with_a_wrong_field_is_refused(tmp_path: Path, field: str, wrong: str) -> None:
    path = tmp_path / "cpu.json"
    records.write(path, **GIVEN)
    (kept,) = json.loads(path.read_text())
    path.write_text(json.dumps([kept | {field: wrong}]))
    with pytest.raises(ValueError, match=r"cpu\.json: "):
        records.read(path)


def test_versions_name_what_was_used() -> None:
    assert list(records.versions("msgspec")) == ["python", "parkway", "numpy", "msgspec"]
