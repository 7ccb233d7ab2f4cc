"""What `parkway verify` says on a GPU is recorded only where it has tried everything."""

import json
import subprocess
from typing import Any

import pytest

from benchmarks import h200

TOLD = {"differing": 0, "missed": 0, "seconds": 100.0}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seen = list[float]()
    monkeypatch.setattr(h200, "record", lambda figure, value, *how, **named: seen.append(value))
    return seen


def ended(monkeypatch: pytest.MonkeyPatch, code: int, told: dict[str, Any] | None) -> None:
    line = "" if told is None else json.dumps(told)
    done = subprocess.CompletedProcess([], code, f"a table\n{line}\n", "")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **how: done)


@pytest.mark.parametrize(("code", "differing"), [(0, 0), (1, 3)])
def test_a_whole_run_is_recorded(
    monkeypatch: pytest.MonkeyPatch, recorded: list[float], code: int, differing: int
) -> None:
    ended(monkeypatch, code, TOLD | {"differing": differing})
    h200.verified()
    assert recorded == [differing, 100.0]


@pytest.mark.parametrize(
    ("code", "told"),
    [(1, TOLD | {"missed": 2}), (0, TOLD | {"missed": 2}), (1, TOLD), (-9, TOLD), (1, None), (0, None)],
)
def test_a_run_that_has_not_tried_everything_is_not(
    monkeypatch: pytest.MonkeyPatch, recorded: list[float], code: int, told: dict[str, Any] | None
) -> None:
    ended(monkeypatch, code, told)
    with pytest.raises(RuntimeError, match=f"verify ended with {code}"):
        h200.verified()
    assert recorded == []
