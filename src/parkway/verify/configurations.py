"""What is varied: the axes, their full product, a set that covers every pair of values, a sample. Runs nothing."""

import itertools
import random
from dataclasses import astuple, dataclass
from typing import Literal

Sampling = Literal["greedy", "sampled"]
Frequency = Literal["never", "often"]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One value on every axis, in the order of AXES. chunk_tokens None: a prompt is computed whole.

    `sampling` is the subject's; the chats beside it mix both. `replayed`: how often chats give back their pages.
    """

    neighbours: int
    chunk_tokens: int | None
    slots: int
    threads: int
    sampling: Sampling
    replayed: Frequency

    @property
    def values(self) -> list[tuple[str, object]]:
        """(axis, value) of every axis."""
        return list(zip(AXES, astuple(self), strict=True))

    @property
    def pairs(self) -> set[tuple[tuple[str, object], ...]]:
        """Every two values that meet here."""
        return set(itertools.combinations(self.values, 2))


AXES: dict[str, tuple[object, ...]] = {
    "beside": (0, 3, 15),
    "chunk": (1, 7, 64, 256, None),
    "slots": (1, 2, 4, 16),
    "threads": (1, 2),
    "sampling": ("greedy", "sampled"),
    "replayed": ("never", "often"),
}


def shown(value: object) -> str:
    return "whole" if value is None else str(value)


def product() -> list[Configuration]:
    """All of them, in the order of the axes."""
    return list(itertools.starmap(Configuration, itertools.product(*AXES.values())))


def covering(seed: int) -> list[Configuration]:
    """A few configurations in which every pair of values of two axes meets; another few for another seed."""
    candidates = product()
    random.Random(f"{seed} covering").shuffle(candidates)
    pairs = {candidate: candidate.pairs for candidate in candidates}
    left = set().union(*pairs.values())
    chosen: list[Configuration] = []
    while left:
        best = max(candidates, key=lambda candidate: len(pairs[candidate] & left))
        chosen.append(best)
        left -= pairs[best]
    return chosen


def sample(seed: int, count: int) -> list[Configuration]:
    """`count` different configurations of the full product, drawn with the seed."""
    return random.Random(f"{seed} sample").sample(product(), count)
