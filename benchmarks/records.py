"""The records of measured figures in results/, one per figure. Knows nothing of how anything is measured."""

import math
import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Literal

import msgspec

from parkway.machine import machine as machine
from parkway.machine import versions as versions

RESULTS = Path(__file__).parent / "results"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One figure as it was measured last. `reach` is what it should at least (or at most) be."""

    figure: str
    value: float
    unit: str
    better: Literal["higher", "lower"]
    reach: float
    command: str
    machine: str
    versions: dict[str, str]
    date: str

    def __post_init__(self) -> None:
        """Raises ValueError naming the field."""
        for name in ("figure", "unit", "command", "machine"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} must not be empty")
        for name in ("value", "reach"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be finite, not {getattr(self, name)}")
        date.fromisoformat(self.date)

    @property
    def reached(self) -> bool:
        return self.value >= self.reach if self.better == "higher" else self.value <= self.reach


def read(path: Path) -> list[Record]:
    """The records of one machine's file; none if there is no file. Raises ValueError naming what is wrong in it."""
    if not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Record])
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: {error}") from error


def write(
    path: Path,
    *,
    figure: str,
    value: float,
    unit: str,
    better: Literal["higher", "lower"],
    reach: float,
    command: str,
    packages: tuple[str, ...] = (),
    other_versions: Mapping[str, str] | None = None,
) -> Record:
    """Put a figure measured now, here, into the file, in place of the one of the same name. Raises ValueError.

    `packages` are installed here; `other_versions` are those of what is not.
    """
    record = Record(
        figure=figure,
        value=value,
        unit=unit,
        better=better,
        reach=reach,
        command=command,
        machine=machine(),
        versions=versions(*packages) | dict(other_versions or {}),
        date=date.today().isoformat(),
    )
    others = [other for other in read(path) if other.figure != figure]
    ordered = sorted([*others, record], key=lambda each: each.figure)
    text = msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(text)
    os.replace(unfinished, path)
    return record
