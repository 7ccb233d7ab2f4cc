"""What a verification tells: tables, the first differences, one JSON line. Runs nothing."""

import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from parkway.verify.configurations import AXES, shown
from parkway.verify.trial import Trial

MOST_DIFFERENCES = 10
"""Most chats whose first difference is told; the counts are of all of them."""

_COUNTS = ("chats", "steps", "replays", "differ")


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON line. `differing` counts chats, once for each configuration in which they differ."""

    mode: str
    seed: int
    configurations: int
    chats: int
    compared_steps: int
    given_back: int
    differing: int
    seconds: float
    machine: str
    versions: dict[str, str]
    fingerprint: str


def summary(trials: list[Trial], mode: str, seed: int, seconds: float, fingerprint: str) -> Summary:
    chats, compared_steps, given_back, differing = _counts(trials)
    return Summary(
        mode=mode,
        seed=seed,
        configurations=len(trials),
        chats=chats,
        compared_steps=compared_steps,
        given_back=given_back,
        differing=differing,
        seconds=round(seconds, 1),
        machine=_machine(),
        versions={"python": platform.python_version()} | {name: version(name) for name in ("parkway", "numpy")},
        fingerprint=fingerprint,
    )


def tables(trials: list[Trial]) -> Group:
    """Every configuration with its counts, the same by axis value, and where the first answers left the right ones."""
    return Group(_by_configuration(trials), _by_value(trials), *_differences(trials))


def _by_configuration(trials: list[Trial]) -> Table:
    table = _table("Configurations", "", *AXES)
    for number, trial in enumerate(trials, start=1):
        _add(table, [number, *(value for _, value in trial.configuration.values)], [trial])
    return table


def _by_value(trials: list[Trial]) -> Table:
    table = _table("By value", "axis", "value", "configurations")
    for axis, values in AXES.items():
        for value in values:
            there = [trial for trial in trials if (axis, value) in trial.configuration.values]
            _add(table, [axis, value, len(there)], there)
        table.add_section()
    return table


def _differences(trials: list[Trial]) -> Iterable[Text]:
    found = [(trial, chat, difference) for trial in trials for chat, difference in trial.differences]
    for trial, chat, difference in found[:MOST_DIFFERENCES]:
        where = ", ".join(f"{axis} {shown(value)}" for axis, value in trial.configuration.values)
        yield Text(
            f"\nThe {chat} differs with {where}\n  first at {difference.where}\n"
            f"  alone  {difference.expected}\n  here   {difference.found}"
        )
    if len(found) > MOST_DIFFERENCES:
        yield Text(f"\n… and {len(found) - MOST_DIFFERENCES} more")


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    for column in _COUNTS:
        table.add_column(column, justify="right")
    return table


def _add(table: Table, labels: list[object], trials: list[Trial]) -> None:
    counts = _counts(trials)
    style = "red" if counts[-1] else None
    table.add_row(*map(shown, labels), *(f"{count:,}" for count in counts), style=style)


def _counts(trials: list[Trial]) -> tuple[int, int, int, int]:
    return (
        sum(trial.chats for trial in trials),
        sum(trial.compared_steps for trial in trials),
        sum(trial.given_back for trial in trials),
        sum(len(trial.differences) for trial in trials),
    )


def _machine() -> str:
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        processor = names[0] if names else processor
    return f"{processor}, {len(os.sched_getaffinity(0))} cores, {platform.system()} {platform.machine()}"


def line(told: Summary) -> str:
    return msgspec.json.encode(told).decode()
