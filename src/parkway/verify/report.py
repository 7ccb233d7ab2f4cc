"""What a verification tells: tables, the first differences, one JSON line. Runs nothing."""

from collections.abc import Iterator

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from parkway.machine import machine, versions
from parkway.verify.configurations import Axes, Device, shown
from parkway.verify.trial import Trial

MOST_DIFFERENCES = 10
"""Most configurations whose first difference is told; the counts are of all."""

WIDTH = 92
"""Columns of a terminal that the tables need; less would cut values off."""

_PACKAGES: dict[Device, tuple[str, ...]] = {"cpu": (), "cuda": ("torch", "triton")}
_COUNTS = ("chats", "steps", "replays", "cached", "differ")


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON line. `cached_tokens` of prompts were found in the cache. `differing` counts chats, once for each
    configuration in which they differ."""

    device: str
    mode: str
    seed: int
    configurations: int
    chats: int
    compared_steps: int
    given_back: int
    cached_tokens: int
    differing: int
    seconds: float
    machine: str
    versions: dict[str, str]
    fingerprint: str


def summary(trials: list[Trial], *, device: Device, mode: str, seed: int, seconds: float, fingerprint: str) -> Summary:
    chats, compared_steps, given_back, cached_tokens, differing = _counts(trials)
    return Summary(
        device=device,
        mode=mode,
        seed=seed,
        configurations=len(trials),
        chats=chats,
        compared_steps=compared_steps,
        given_back=given_back,
        cached_tokens=cached_tokens,
        differing=differing,
        seconds=round(seconds, 1),
        machine=machine(),
        versions=versions(*_PACKAGES[device]),
        fingerprint=fingerprint,
    )


def tables(trials: list[Trial], axes: Axes) -> Group:
    """Every configuration with its counts, and the counts by axis value."""
    return Group(_by_configuration(trials, axes), "", _by_value(trials, axes))


def differences(trials: list[Trial], axes: Axes) -> Iterator[str]:
    """Where an answer first left the right one, for each configuration with one that did."""
    differing = [(number, trial) for number, trial in enumerate(trials, start=1) if trial.differences]
    for number, trial in differing[:MOST_DIFFERENCES]:
        values = ", ".join(f"{axis} {shown(trial.configuration.values[axis])}" for axis in axes.varied)
        chat, difference = trial.differences[0]
        yield f"Configuration {number} ({values}): the {chat} differs"
        yield f"  first at {difference.where}"
        yield f"  alone {difference.expected}"
        yield f"  here  {difference.found}"
    if len(differing) > MOST_DIFFERENCES:
        yield f"… and {len(differing) - MOST_DIFFERENCES} more configurations"


def _by_configuration(trials: list[Trial], axes: Axes) -> Table:
    table = _table("Configurations", "", *axes.varied)
    for number, trial in enumerate(trials, start=1):
        _add(table, [number, *(trial.configuration.values[axis] for axis in axes.varied)], [trial])
    return table


def _by_value(trials: list[Trial], axes: Axes) -> Table:
    table = _table("By value", "axis", "value", "configurations")
    for axis, values in axes.varied.items():
        for value in values:
            there = [trial for trial in trials if trial.configuration.values[axis] == value]
            _add(table, [axis, value, len(there)], there)
        table.add_section()
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, show_edge=False)
    for column in _COUNTS:
        table.add_column(column, justify="right")
    return table


def _add(table: Table, labels: list[object], trials: list[Trial]) -> None:
    counts = _counts(trials)
    style = "red" if counts[-1] else None
    table.add_row(*map(shown, labels), *(f"{count:,}" for count in counts), style=style)


def _counts(trials: list[Trial]) -> tuple[int, int, int, int, int]:
    return (
        sum(trial.chats for trial in trials),
        sum(trial.compared_steps for trial in trials),
        sum(trial.given_back for trial in trials),
        sum(trial.cached_tokens for trial in trials),
        sum(len(trial.differences) for trial in trials),
    )


def line(told: Summary) -> str:
    return msgspec.json.encode(told).decode()
