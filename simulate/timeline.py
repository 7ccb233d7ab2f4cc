"""Reads a trace: for each slot, stretches of time in one state for one request, and tokens over time. Draws nothing."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from parkway.report import SlotView


class Moment(msgspec.Struct):
    """One line of a trace behind the first."""

    at: float
    slots: list[dict[str, Any]]


class Header(msgspec.Struct):
    """The first line."""

    parkway: str
    model: str
    settings: dict[str, Any]


@dataclass(slots=True)
class Stretch:
    """A slot from `start` to `end`, in seconds: `points` are times and how many tokens its chat had then."""

    request_id: int
    state: str
    start: float
    end: float
    points: list[tuple[float, int]] = field(default_factory=list)


@dataclass(slots=True)
class Timeline:
    """`slots`: the stretches of each, by time, without those in which nobody had it. Times count from the first."""

    header: Header
    slots: list[list[Stretch]]
    seconds: float

    @property
    def most_tokens(self) -> int:
        return max([tokens for slot in self.slots for stretch in slot for _, tokens in stretch.points], default=1)


def read(path: Path) -> Timeline:
    """The trace in a file. A last line that was not finished is left out. Raises ValueError naming the line."""
    lines = path.read_bytes().split(b"\n")
    if len(lines) < 2:
        raise ValueError(f"{path} is no trace")
    header = _decoded(path, 1, lines[0], Header)
    moments = [_decoded(path, number, line, Moment) for number, line in enumerate(lines[1:-1], 2)]
    if not moments:
        return Timeline(header, [], 0.0)
    first = moments[0].at
    slots: list[list[Stretch]] = [[] for _ in moments[0].slots]
    for moment in moments:
        for stretches, fields in zip(slots, moment.slots, strict=True):
            _continue(stretches, SlotView(**fields), moment.at - first)
    return Timeline(header, [[each for each in slot if each.state != "idle"] for slot in slots], moments[-1].at - first)


def _decoded(path: Path, number: int, line: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}, line {number}: {error}") from error


def _continue(stretches: list[Stretch], slot: SlotView, at: float) -> None:
    """What a moment says of a slot holds from then until the next."""
    request_id = -1 if slot.request_id is None else slot.request_id
    last = stretches[-1] if stretches else None
    if last:
        last.end = at
    if last is None or (last.request_id, last.state) != (request_id, slot.state):
        last = Stretch(request_id, slot.state, at, at)
        stretches.append(last)
    last.points.append((at, slot.tokens))
