"""A hybrid model of random weights is verified: parked, computed again, with hits at checkpoints and without."""

import json
from pathlib import Path
from typing import Any

import pytest

from parkway import verify
from parkway.config import EngineSettings
from parkway.memory.state_store import StateStore
from parkway.plan.checkpoints import Checkpoints
from parkway.verify import configurations

HYBRID = Path("shape:tiny-qwen35")
CPU = EngineSettings(device="cpu")


def verified(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = verify.run(HYBRID, "quick", 0, CPU)
    return code, json.loads(capsys.readouterr().out.rstrip("\n").rpartition("\n")[2])


def test_it_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = verified(capsys)
    assert code == line["differing"] == line["missed"] == 0
    assert line["cached_tokens"] > 500
    assert line["recomputes"] > 0
    assert line["restores"] > 0


@pytest.fixture
def shared_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the configurations whose chats share their beginnings."""
    covering = configurations.covering

    def some(axes: Any, seed: int) -> list[Any]:
        return [each for each in covering(axes, seed) if each.prefix == "shared"]

    monkeypatch.setattr(verify.command, "covering", some)
    monkeypatch.setattr(verify.command, "sample", lambda axes, seed, count: [])


@pytest.mark.usefixtures("shared_only")
def test_a_state_that_is_not_copied_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(StateStore, "begin", lambda *_, **__: None)
    assert verified(capsys)[1]["differing"] > 0


@pytest.mark.usefixtures("shared_only")
def test_pages_without_a_checkpoint_are_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Checkpoints, "reached", lambda self, slot, pages: len(pages))
    monkeypatch.setattr(Checkpoints, "enter", lambda self, slot: None)
    assert verified(capsys)[1]["differing"] > 0
