"""What tests that verify a model share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parkway import verify
from parkway.config import EngineSettings
from parkway.verify import configurations

Verified = Callable[[Path], tuple[int, dict[str, Any]]]


@pytest.fixture
def verified(capsys: pytest.CaptureFixture[str]) -> Verified:
    """Verifies a model quickly on the CPU: the exit code, and the line for programs."""

    def run(path: Path) -> tuple[int, dict[str, Any]]:
        code = verify.run(path, "quick", 0, EngineSettings(device="cpu"))
        return code, json.loads(capsys.readouterr().out.rstrip("\n").rpartition("\n")[2])

    return run


@pytest.fixture
def shared_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the configurations whose chats share their beginnings."""
    covering = configurations.covering

    def some(axes: Any, seed: int) -> list[Any]:
        return [each for each in covering(axes, seed) if each.prefix == "shared"]

    monkeypatch.setattr(verify.command, "covering", some)
    monkeypatch.setattr(verify.command, "sample", lambda axes, seed, count: [])
