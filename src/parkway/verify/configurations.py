"""What is varied: each device's axes, their full product, a set that covers every pair, a sample. Runs nothing."""

import itertools
import random
from collections import defaultdict
from dataclasses import dataclass, fields, replace
from typing import Literal

from parkway.config import Switch

Device = Literal["cpu", "cuda"]
Sampling = Literal["greedy", "sampled"]
Kept = Literal["copied", "recomputed", "1 MiB", "-"]
Copying = Literal["async", "sync", "-"]
Prefix = Literal["cold", "cached", "shared"]

OFTEN, SELDOM = 8, 64
"""Answer tokens from one park of a chat to its next."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One value on every axis. chunk: most tokens of one prompt in a step; None: a prompt is computed whole.

    `sampling` is the subject's; the chats beside it mix both. `park_every`: each chat is parked every so many tokens of
    its answer; 0: nobody is parked. `kept`: what becomes of its pages. copied: the host has room for all; recomputed:
    for none; 1 MiB: for no page of most models, for some of a small one. `copying`: beside the steps, or between them.
    Both are "-" where nobody is parked.

    `prefix`: where the subject's first pages come from. cold: there is no prefix cache; cached: a twin with the same
    prompt has come and gone; shared: the twin is still answering when the subject starts, and needs them too.
    """

    beside: int
    chunk: int | None
    slots: int
    threads: int
    graphs: Switch
    sampling: Sampling
    park_every: int
    kept: Kept
    copying: Copying
    prefix: Prefix

    @property
    def values(self) -> dict[str, object]:
        """By axis."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def squeezed(self) -> bool:
        """Whether a chat comes late that fits until the subject has grown: they take turns, and it is parked in its
        prompt. Those beside must be few, so that they have gone by then."""
        seldom, alone = self.park_every == SELDOM and self.kept == "copied", self.prefix != "shared"
        return seldom and alone and self.slots > max(1, 4 * self.beside)

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
    park_every: tuple[int, ...] = (0, OFTEN, SELDOM)
    kept: tuple[Kept, ...] = ("copied", "recomputed", "1 MiB")
    copying: tuple[Copying, ...] = ("async", "sync")
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
        every = map(_without_parks, itertools.starmap(Configuration, itertools.product(*values)))
        return [each for each in dict.fromkeys(every) if not _endless(each)]


def _without_parks(configuration: Configuration) -> Configuration:
    """Where nobody is parked, nothing is kept or copied: the same configuration, whatever the axes say of that."""
    return configuration if configuration.park_every else replace(configuration, kept="-", copying="-")


def _endless(configuration: Configuration) -> bool:
    """Long answers token by token take as long as ten other configurations, unless pages are copied. So they are there
    only to park a chat in its prompt, which takes longest like that."""
    return configuration.chunk == 1 and configuration.park_every == SELDOM and not configuration.squeezed


AXES: dict[Device, Axes] = {
    "cpu": Axes(beside=(0, 3, 15), chunk=(1, 7, 64, 256, None), slots=(1, 2, 4, 16), threads=(1, 2)),
    "cuda": Axes(beside=(0, 3, 15, 63), chunk=(1, 64, 100, 512, None), slots=(1, 4, 16, 64), graphs=("on", "off")),
}


def shown(value: object) -> str:
    return "whole" if value is None else str(value)


def covering(axes: Axes, seed: int) -> list[Configuration]:
    """A few configurations in which all values of two axes meet that ever do; another few for another seed.

    Of two that bring as many new pairs the one with shorter answers is taken.
    """
    candidates = axes.product
    random.Random(f"{seed} covering").shuffle(candidates)
    bits: defaultdict[tuple[tuple[str, object], ...], int] = defaultdict(lambda: 1 << len(bits))
    pairs = {candidate: sum(bits[pair] for pair in candidate.pairs) for candidate in candidates}
    left = sum(bits.values())
    chosen: list[Configuration] = []
    while left:
        best = max(candidates, key=lambda candidate: ((pairs[candidate] & left).bit_count(), -candidate.park_every))
        chosen.append(best)
        left &= ~pairs[best]
    return chosen


def sample(axes: Axes, seed: int, count: int) -> list[Configuration]:
    """`count` different configurations of the full product, drawn with the seed."""
    return random.Random(f"{seed} sample").sample(axes.product, count)
