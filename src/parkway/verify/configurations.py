"""What is varied: each device's axes, their full product, a set that covers every pair, a sample. Runs nothing."""

import itertools
import random
from dataclasses import dataclass, fields
from typing import Literal

from parkway.config import Switch

Device = Literal["cpu", "cuda"]
Sampling = Literal["greedy", "sampled"]
Frequency = Literal["never", "often"]
Prefix = Literal["cold", "cached", "shared"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One value on every axis. chunk: most tokens of one prompt in a step; None: a prompt is computed whole.

    `sampling` is the subject's; the chats beside it mix both. `replayed`: how often chats give back their pages.
    `prefix`: where the subject's first pages come from. cold: there is no prefix cache; cached: a twin with the same
    prompt has come and gone; shared: the twin is still answering when the subject starts, and needs them too.
    """

    beside: int
    chunk: int | None
    slots: int
    threads: int
    graphs: Switch
    sampling: Sampling
    replayed: Frequency
    prefix: Prefix

    @property
    def values(self) -> dict[str, object]:
        """By axis."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def pairs(self) -> set[tuple[tuple[str, object], ...]]:
        """Every two values, each with its axis, that meet here."""
        return set(itertools.combinations(self.values.items(), 2))


@dataclass(frozen=True, slots=True)
class Axes:
    """The values that a device is tried with, for each field of Configuration. What it can't vary has one value."""

    beside: tuple[int, ...]
    chunk: tuple[int | None, ...]
    slots: tuple[int, ...]
    threads: tuple[int, ...] = (1,)
    graphs: tuple[Switch, ...] = ("off",)
    sampling: tuple[Sampling, ...] = ("greedy", "sampled")
    replayed: tuple[Frequency, ...] = ("never", "often")
    prefix: tuple[Prefix, ...] = ("cold", "cached", "shared")

    @property
    def varied(self) -> dict[str, tuple[object, ...]]:
        """The axes that have more than one value."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {axis: those for axis, those in values.items() if len(those) > 1}

    @property
    def product(self) -> list[Configuration]:
        """All configurations, in the order of the axes."""
        values = (getattr(self, field.name) for field in fields(self))
        return list(itertools.starmap(Configuration, itertools.product(*values)))


AXES: dict[Device, Axes] = {
    "cpu": Axes(beside=(0, 3, 15), chunk=(1, 7, 64, 256, None), slots=(1, 2, 4, 16), threads=(1, 2)),
    "cuda": Axes(beside=(0, 3, 15, 63), chunk=(1, 64, 100, 512, None), slots=(1, 4, 16, 64), graphs=("on", "off")),
}


def shown(value: object) -> str:
    return "whole" if value is None else str(value)


def covering(axes: Axes, seed: int) -> list[Configuration]:
    """A few configurations in which every pair of values of two axes meets; another few for another seed."""
    candidates = axes.product
    random.Random(f"{seed} covering").shuffle(candidates)
    pairs = {candidate: candidate.pairs for candidate in candidates}
    left = set().union(*pairs.values())
    chosen: list[Configuration] = []
    while left:
        best = max(candidates, key=lambda candidate: len(pairs[candidate] & left))
        chosen.append(best)
        left -= pairs[best]
    return chosen


def sample(axes: Axes, seed: int, count: int) -> list[Configuration]:
    """`count` different configurations of the full product, drawn with the seed."""
    return random.Random(f"{seed} sample").sample(axes.product, count)
