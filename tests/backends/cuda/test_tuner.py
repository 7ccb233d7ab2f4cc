"""Picks are the fastest of what may be used, and are remembered for as long as they may be used."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from parkway.backends.bit_check import BitCheckFailed, Verdict
from parkway.backends.cuda import tuner
from parkway.backends.cuda.tuner import Tuner

SOUND = Verdict(0, {}, 0.0)
CANDIDATES = [(1, 16), (2, 32), (3, 64)]
SECONDS = {(1, 16): 3e-6, (2, 32): 1e-6, (3, 64): 2e-6}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuned" / "picks.json"


@pytest.fixture(autouse=True)
def timed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The candidates that were timed, each on a GPU that takes SECONDS for it."""
    seen = list[tuple[int, int]]()

    def seconds(launch: Callable[[int], object]) -> float:
        launch(0)
        return SECONDS[seen[-1]]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(tuner, "seconds", seconds)
    return seen


def picked(made: Tuner, timed: list[tuple[int, int]], name: str = "a shape") -> tuple[int, int]:
    found: tuple[int, int] = made.pick("linear", name, CANDIDATES, lambda config, i: timed.append(config))
    return found


def test_the_fastest_is_picked(path: Path, timed: list[tuple[int, int]]) -> None:
    made = Tuner(path, SOUND)
    assert made.known("linear", "a shape", CANDIDATES) is None
    assert picked(made, timed) == (2, 32)
    assert timed == CANDIDATES


def test_the_fastest_of_what_may_be_used(path: Path, timed: list[tuple[int, int]]) -> None:
    assert picked(Tuner(path, Verdict(0, {"linear": [(2, 32)]}, 0.0)), timed) == (3, 64)
    assert timed == [(1, 16), (3, 64)]


def test_picks_are_remembered_on_disk(path: Path, timed: list[tuple[int, int]]) -> None:
    first = Tuner(path, SOUND)
    picked(first, timed)
    picked(first, timed, "another")
    for made in (first, Tuner(path, SOUND)):
        assert made.known("linear", "a shape", CANDIDATES) == (2, 32)
        assert made.known("linear", "another", CANDIDATES) == (2, 32)
        assert made.known("gated", "a shape", CANDIDATES) is None
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_pick_that_is_no_candidate_any_more_is_not_taken(path: Path, timed: list[tuple[int, int]]) -> None:
    picked(Tuner(path, SOUND), timed)
    assert Tuner(path, SOUND).known("linear", "a shape", [(1, 16), (3, 64)]) is None


def test_a_pick_that_the_check_has_dropped_is_not_taken(path: Path, timed: list[tuple[int, int]]) -> None:
    picked(Tuner(path, SOUND), timed)
    assert Tuner(path, Verdict(0, {"linear": [(2, 32)]}, 0.0)).known("linear", "a shape", CANDIDATES) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"linear a shape": 2}', '{"linear a shape": ["two"]}'])
def test_a_damaged_file_is_as_good_as_none(path: Path, timed: list[tuple[int, int]], text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    made = Tuner(path, SOUND)
    assert made.known("linear", "a shape", CANDIDATES) is None
    assert picked(made, timed) == (2, 32)
    assert Tuner(path, SOUND).known("linear", "a shape", CANDIDATES) == (2, 32)


def test_nothing_is_timed_where_there_is_no_choice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = Verdict(0, {"linear": [(1, 16), (2, 32)]}, 0.0)
    assert Tuner(path, dropped).known("linear", "a shape", CANDIDATES) == (3, 64)
    with pytest.raises(BitCheckFailed):
        Tuner(path, Verdict(0, {"linear": list(CANDIDATES)}, 0.0)).known("linear", "a shape", CANDIDATES)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Tuner(path, SOUND).known("linear", "a shape", CANDIDATES) == (1, 16)
