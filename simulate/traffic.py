"""Chats of seeded lengths and arrivals. Knows no planner and no device."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

LEAST_ANSWER = 64
MEASURED_PROMPT = (1000, 100)
"""Mean and deviation."""


@dataclass(frozen=True, slots=True)
class Chat:
    """`at`: seconds from the start of the run; `prompt` and `answer`: tokens, the one that ends it among them."""

    at: float
    prompt: int
    answer: int


def measured(random: Generator) -> tuple[float, float]:
    """Prompts of about 1,000 tokens; answers log-normal: median 2,000, mean 2,750, one of ten above 5,600."""
    return random.normal(*MEASURED_PROMPT), random.lognormal(np.log(2000), 0.8)


def uniform(random: Generator) -> tuple[float, float]:
    return random.uniform(200, 1800), random.uniform(200, 3800)


def heavy(random: Generator) -> tuple[float, float]:
    """Answers by Pareto's law, whose exponent of 1.1 makes a few chats as long as all others together."""
    return random.normal(*MEASURED_PROMPT), 700 * (1 + random.pareto(1.1))


LENGTHS: dict[str, Callable[[Generator], tuple[float, float]]] = {
    "measured": measured,
    "uniform": uniform,
    "heavy": heavy,
}


def traffic(lengths: str, chats: int, most: int, seed: int, *, every: float = 0.0) -> list[Chat]:
    """So many chats, by arrival. None is longer than `most` tokens. `every`: mean seconds between two, drawn from the
    exponential distribution; 0: all at once."""
    random = np.random.default_rng([seed, *lengths.encode()])
    drawn = []
    for _ in range(chats):
        prompt, answer = LENGTHS[lengths](random)
        prompt = min(max(1, round(prompt)), most - LEAST_ANSWER)
        drawn.append((prompt, min(max(LEAST_ANSWER, round(answer)), most - prompt)))
    times = np.cumsum(random.exponential(every, chats)) if every else np.zeros(chats)
    return [Chat(float(at), *each) for at, each in zip(times, drawn, strict=True)]
