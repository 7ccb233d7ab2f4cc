"""Which durations of a park are recorded."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import parks, records
from benchmarks.parks import Bench, Landings
from parkway.config import EngineSettings


def watch(landings: Landings) -> None:
    """As if parks had taken these milliseconds."""
    landings.pages, landings.whole, landings.behind = [31, 31, 31], [6.0, 7.0, 9.0], [0.5, 0.7, 0.9]


def test_a_park_lasts_from_its_decision_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saved ahead or not; what of it comes after the chat's last step is another figure."""
    model: Any = None
    engine = SimpleNamespace(arrive=lambda request: None, facts=SimpleNamespace(vocab_size=89))
    monkeypatch.setattr(Bench, "engine", lambda *arguments: engine)
    monkeypatch.setattr(Landings, "watch", watch)
    monkeypatch.setattr(records, "versions", lambda *packages: {})
    path = tmp_path / "h200.json"
    parks.latency(Bench(model, EngineSettings(device="cuda"), path, ""))
    park = "park of 2,000 tokens"
    assert {each.figure: each.value for each in records.read(path)} == {
        f"{park}, decision to landed, cold": 7.0,
        f"{park}, decision to landed, saved ahead": 7.0,
        f"{park}, saved ahead, last step to landed": 0.7,
    }
