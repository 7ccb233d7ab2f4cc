"""The check that keeps the promise true: every configuration of an operation must give the same bits, row by row.

A claim about bits holds for the compiler and chip on which it was tested. So at load each configuration computes
adversarial rows all together and alone. One that differs is dropped; if none is left the load fails. Knows no kernel.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from parkway.errors import StartError

logger = logging.getLogger(__name__)

Config = tuple[int, ...]


class BitCheckFailed(StartError):
    def __init__(self, operation: str) -> None:
        super().__init__(f"bit check: no configuration of {operation} computes a row alone as it does among others")


class Subject(Protocol):
    """One operation on one set of inputs. `output` computes some rows, with only these in the batch."""

    @property
    def name(self) -> str: ...
    @property
    def candidates(self) -> Sequence[Config]: ...
    @property
    def rows(self) -> int: ...

    def suits(self, config: Any, rows: int) -> bool:
        """Whether a configuration may be used for so many rows."""

    def output(self, config: Any, rows: slice) -> Any:
        """A tensor whose first dimension are the rows."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found. `dropped`: the configurations, by operation, that must not be used."""

    comparisons: int
    dropped: dict[str, list[Config]]
    seconds: float

    def allowed(self, operation: str, candidates: Sequence[Any]) -> list[Any]:
        """The candidates that may be used. Raises BitCheckFailed where none may."""
        dropped = self.dropped.get(operation, [])
        kept = [config for config in candidates if tuple(config) not in dropped]
        if not kept:
            raise BitCheckFailed(operation)
        return kept

    def __str__(self) -> str:
        count = sum(map(len, self.dropped.values()))
        return f"{self.comparisons} comparisons, {count} configurations dropped"


def check(subjects: Iterable[Subject], equal: Callable[[Any, Any], bool]) -> Verdict:
    """Compares every candidate of every subject. Raises BitCheckFailed naming an operation that has none left."""
    started, comparisons = perf_counter(), 0
    dropped: dict[str, list[Config]] = {}
    for subject in subjects:
        bad, count = _differing(subject, equal)
        comparisons += count
        known = dropped.setdefault(subject.name, [])
        known += [config for config in bad if config not in known]
        for config in bad:
            logger.warning("bit check: %s drops configuration %s", subject.name, config)
        if all(tuple(config) in known for config in subject.candidates):
            raise BitCheckFailed(subject.name)
    return Verdict(comparisons, {name: bad for name, bad in dropped.items() if bad}, perf_counter() - started)


def check_once(
    path: Path, subjects: Callable[[], Iterable[Subject]], equal: Callable[[Any, Any], bool]
) -> tuple[Verdict, bool]:
    """The verdict kept at `path`, else a new one that is kept there; and whether it was kept. Raises like check."""
    if (kept := _read(path)) is not None:
        return kept, True
    verdict = check(subjects(), equal)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = {"comparisons": verdict.comparisons, "dropped": verdict.dropped, "seconds": verdict.seconds}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(made))
    part.replace(path)
    return verdict, False


def _read(path: Path) -> Verdict | None:
    try:
        kept = json.loads(path.read_text())
        dropped = {name: [tuple(config) for config in bad] for name, bad in kept["dropped"].items()}
        return Verdict(kept["comparisons"], dropped, kept["seconds"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # not there, or damaged: check again
        return None


def _differing(subject: Subject, equal: Callable[[Any, Any], bool]) -> tuple[list[Config], int]:
    """The candidates that don't compute the rows as the first sound one does, and how many sets of rows were compared.

    A candidate is sound if it computes rows alone as it does among all; one that is not must not be the measure.
    """
    expected, count, whole = None, 0, slice(0, subject.rows)
    bad: list[Config] = []
    for config in sorted(subject.candidates, key=lambda each: not subject.suits(each, subject.rows)):
        sets = _some_rows(subject, config)
        count += len(sets)
        try:
            made = subject.output(config, whole) if subject.suits(config, subject.rows) else expected
            same = made is not None and all(equal(subject.output(config, rows), made[rows]) for rows in sets)
        except Exception:  # what is compiled on the spot may not suit this machine
            logger.warning("bit check: %s can't run configuration %s", subject.name, config, exc_info=True)
            same = False
        expected = made if same and expected is None else expected
        if not same or not equal(made, expected):
            bad.append(tuple(config))
    return bad, count


def _some_rows(subject: Subject, config: Any) -> list[slice]:
    """Sets of rows to compute alone: one at either end, and a few in the middle; those that the configuration suits."""
    total = subject.rows
    sets = (slice(0, 1), slice(total - 1, total), slice(total // 2, min(total, total // 2 + 5)))
    return [rows for rows in sets if subject.suits(config, rows.stop - rows.start)]
