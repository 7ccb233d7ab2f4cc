"""Adversarial rows for the sampler's bit check: every filter on every kind of logits, beside strangers that hold NaN.

Columns behind the vocabulary hold infinities, which nobody may see.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from parkway.backends.cuda.sample import ORDER, RESULT, Sampler
from parkway.backends.cuda.sample_row import CHUNK

ROWS = 64
VOCABULARY = 50_003
_MARGIN = 13


class SampleConfig(NamedTuple):
    """How the sampler's columns are cut. There is one way: how many programs a row has follows from the row count."""

    chunk: int


@dataclass(frozen=True, slots=True)
class SampleSubject:
    """Rows of logits fp32 [rows, at least vocabulary] and their orders int32 [rows, words]."""

    logits: torch.Tensor
    orders: torch.Tensor
    sampler: Sampler
    name: str = "sample"
    candidates: Sequence[SampleConfig] = (SampleConfig(CHUNK),)

    @property
    def rows(self) -> int:
        return len(self.orders)

    def suits(self, config: SampleConfig, rows: int) -> bool:
        return True

    def output(self, config: SampleConfig, rows: slice) -> torch.Tensor:
        """The results of those rows, int32 [rows, words]."""
        orders = self.orders[rows].contiguous()
        results = torch.full((len(orders), RESULT.itemsize // 4), -1, dtype=torch.int32, device=orders.device)
        last_tokens = torch.empty(self.rows, dtype=torch.int32, device=orders.device)
        self.sampler.run(self.logits[rows], orders, last_tokens, results, len(orders), pdl=False)
        return results


def subjects(device: torch.device, seed: int) -> list[SampleSubject]:
    return [subject(device, seed, ROWS, VOCABULARY)]


def subject(device: torch.device, seed: int, rows: int, vocabulary: int) -> SampleSubject:
    """Rows of every kind in turn, with orders of every kind in turn."""
    chance = np.random.default_rng(seed)
    logits = np.full((rows, vocabulary + _MARGIN), np.inf, np.float32)
    for row in range(rows):
        logits[row, :vocabulary] = _logits(chance, row % _KINDS, vocabulary)
    orders = torch.from_numpy(_orders(chance, rows).view(np.int32).reshape(rows, -1))
    return SampleSubject(torch.from_numpy(logits).to(device), orders.to(device), Sampler(vocabulary, rows, device))


_KINDS = 7


def _logits(chance: np.random.Generator, kind: int, vocabulary: int) -> npt.NDArray[np.float32]:
    """Peaked, flat, rounded so that many are equal, two equal peaks, mostly -inf, zeros of either sign, with NaN."""
    values = chance.standard_normal(vocabulary, np.float32)
    match kind:
        case 0:
            return np.where(values > 3, values * 8, values * 3)
        case 1:
            return values * np.float32(0.3)
        case 2:
            return np.round(values * 2)
        case 3:
            values[chance.integers(0, vocabulary, 2)] = 30
        case 4:
            values[chance.random(vocabulary) < 0.9] = -np.inf
        case 5:
            return np.where(values > 1, np.float32(0), np.copysign(np.float32(0), values))
        case _:
            values[chance.random(vocabulary) < 0.1] = np.nan
    return values * 4


def _orders(chance: np.random.Generator, rows: int) -> npt.NDArray[np.void]:
    """Greedy, drawn, filtered in every way, looked up; with and without log-probabilities."""
    orders = np.zeros(rows, ORDER)
    turn = np.arange(rows)
    orders["temperature"] = np.choose(turn % 5, (0, 0.6, 1, 1.7, 1))
    orders["top_k"] = np.choose(turn % 4, (0, 40, 0, 3000))
    orders["top_p"] = np.choose(turn % 3, (1, 0.9, 0.3))
    orders["min_p"] = np.choose(turn % 6, (0, 0, 0.05, 0, 0, 1e-6))
    orders["target"] = np.where(turn % 11 == 7, 3, -1)
    orders["top"] = np.choose(turn % 4, (-1, 20, 0, 5))
    orders["seed_low"], orders["seed_high"] = chance.integers(0, 2**32, (2, rows), np.uint64)
    orders["position"], orders["slot"] = turn * 977, turn
    return orders
