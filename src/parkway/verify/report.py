"""What a verification tells: tables, the first differences, one JSON line. Runs nothing."""

from collections.abc import Iterator
from dataclasses import astuple

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from parkway.machine import machine, versions
from parkway.verify.configurations import Axes, Device, shown
from parkway.verify.trial import Counts, Trial

MOST_DIFFERENCES = 10
"""Most configurations whose first difference is told, or what they missed; the counts are of all."""

WIDTH = 118
"""Columns of a terminal that the tables need; less would cut values off."""

_PACKAGES: dict[Device, tuple[str, ...]] = {"cpu": (), "cuda": ("torch", "triton")}
_COUNTS = ("chats", "steps", "parks", "restores", "recomputes", "cached", "differ")


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON line. `parks` and what follows are told of in `Counts`. `differing` counts chats, once for each
    configuration in which they differ; `missed`, configurations that did not try what they say, and whether none of
    those that were to parked a chat in its prompt."""

    device: str
    mode: str
    seed: int
    configurations: int
    chats: int
    compared_steps: int
    parks: int
    restores: int
    recomputes: int
    prompt_parks: int
    cached_tokens: int
    differing: int
    missed: int
    seconds: float
    machine: str
    versions: dict[str, str]
    fingerprint: str


def summary(trials: list[Trial], *, device: Device, mode: str, seed: int, seconds: float, fingerprint: str) -> Summary:
    counts = _total(trials)
    return Summary(
        device=device,
        mode=mode,
        seed=seed,
        configurations=len(trials),
        chats=sum(trial.chats for trial in trials),
        compared_steps=sum(trial.compared_steps for trial in trials),
        parks=counts.parks,
        restores=counts.restores,
        recomputes=counts.recomputes,
        prompt_parks=counts.prompt_parks,
        cached_tokens=counts.cached_tokens,
        differing=_differing(trials),
        missed=sum(bool(trial.missed) for trial in trials) + _unsqueezed(trials),
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
        chat, difference = trial.differences[0]
        yield f"{_named(number, trial, axes)}: the {chat} differs"
        yield f"  first at {difference.where}"
        yield f"  alone {difference.expected}"
        yield f"  here  {difference.found}"
    yield from _more(len(differing))


def missed(trials: list[Trial], axes: Axes) -> Iterator[str]:
    """What was not tried, though a configuration says so."""
    missing = [(number, trial) for number, trial in enumerate(trials, start=1) if trial.missed]
    for number, trial in missing[:MOST_DIFFERENCES]:
        yield f"{_named(number, trial, axes)} proves less than it says: {'; '.join(trial.missed)}"
    yield from _more(len(missing))
    if _unsqueezed(trials):
        yield "No chat was parked in its prompt"


def _unsqueezed(trials: list[Trial]) -> bool:
    squeezed = [trial for trial in trials if trial.configuration.squeezed]
    return bool(squeezed) and not any(trial.counts.prompt_parks for trial in squeezed)


def _named(number: int, trial: Trial, axes: Axes) -> str:
    values = ", ".join(f"{axis} {shown(trial.configuration.values[axis])}" for axis in axes.varied)
    return f"Configuration {number} ({values})"


def _more(count: int) -> Iterator[str]:
    if count > MOST_DIFFERENCES:
        yield f"… and {count - MOST_DIFFERENCES} more configurations"


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
    table = Table(
        *(column.replace("_", "\n") for column in columns),
        title=title,
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    for column in _COUNTS:
        table.add_column(column, justify="right")
    return table


def _add(table: Table, labels: list[object], trials: list[Trial]) -> None:
    counts, differing = _total(trials), _differing(trials)
    numbers = (
        sum(trial.chats for trial in trials),
        sum(trial.compared_steps for trial in trials),
        counts.parks,
        counts.restores,
        counts.recomputes,
        counts.cached_tokens,
        differing,
    )
    style = "red" if differing or any(trial.missed for trial in trials) else None
    table.add_row(*map(shown, labels), *(f"{number:,}" for number in numbers), style=style)


def _total(trials: list[Trial]) -> Counts:
    rows = (astuple(trial.counts) for trial in trials)
    return Counts(*map(sum, zip(*rows, strict=True)))


def _differing(trials: list[Trial]) -> int:
    return sum(len(trial.differences) for trial in trials)


def line(told: Summary) -> str:
    return msgspec.json.encode(told).decode()
