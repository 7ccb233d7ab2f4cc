"""Adversarial rows for the sampler's bit check: every filter on every kind of logits, beside strangers that hold NaN.

Once more with edits of every kind for most rows.

Columns behind the vocabulary hold infinities, which nobody may see.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from parkway.backends.cuda.sample import ORDER, RESULT, Sampler
from parkway.backends.cuda.sample_edits import EDIT_WORDS
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


@dataclass(frozen=True, slots=True)
class EditedSubject(SampleSubject):
    """`edits` int32 [rows, EDIT_WORDS] tells where a row's are in `numbers`, int32."""

    edits: torch.Tensor = field(kw_only=True)
    numbers: torch.Tensor = field(kw_only=True)
    name: str = "sample_edited"

    def output(self, config: SampleConfig, rows: slice) -> torch.Tensor:
        orders, on = self.orders[rows].clone(), self.orders.device
        results = torch.full((len(orders), RESULT.itemsize // 4), -1, dtype=torch.int32, device=on)
        last_tokens = torch.empty(self.rows, dtype=torch.int32, device=on)
        place = torch.tensor([self.numbers.data_ptr()], dtype=torch.int64, device=on)
        edits = self.edits[rows].contiguous()
        self.sampler.run_edited(self.logits[rows], orders, edits, place, last_tokens, results, len(orders), False)
        return results


def subjects(device: torch.device, seed: int) -> list[SampleSubject]:
    return [subject(device, seed, ROWS, VOCABULARY), edited_subject(device, seed, ROWS, VOCABULARY)]


def edited_subject(device: torch.device, seed: int, rows: int, vocabulary: int) -> EditedSubject:
    """The same rows; four of five have edits: of numbers, by a mask, by both, or a mask that allows nothing.

    A third have a chain of samplers.
    """
    plain, chance = subject(device, seed, rows, vocabulary), np.random.default_rng(seed)
    edits, numbers = np.full((rows, EDIT_WORDS), -1, np.int32), list[npt.NDArray[np.int32]]()
    at, count = 0, vocabulary // 7
    for row in range(rows):
        kind = row % 5
        moved = count if kind in (1, 3) else 0
        reals = (chance.random((3, moved), np.float32) * np.float32(3)).astype(np.float32)
        reals[2] -= np.where(chance.random(moved) < 0.1, np.float32(np.inf), np.float32(1))
        ids = chance.permutation(vocabulary)[:moved].astype(np.int32)
        mask = chance.integers(0, 2**32, -(-vocabulary // 32), np.uint32) * np.uint32(kind != 4)
        mine = [ids, reals.reshape(-1).view(np.int32), mask.view(np.int32) if kind >= 2 else ids[:0]]
        if kind:
            edits[row, :3] = moved, at, at + 4 * moved if kind >= 2 else -1
            if row % 3 == 1:
                steps = _chain(row // 3)
                edits[row, 3:] = at + sum(map(len, mine)), len(steps)
                mine.append(steps.view(np.int32).reshape(-1))
            numbers += mine
            at += sum(map(len, mine))
    words = torch.from_numpy(np.concatenate(numbers)).to(device)
    on_device = torch.from_numpy(edits).to(device)
    return EditedSubject(plain.logits, plain.orders, plain.sampler, edits=on_device, numbers=words)


def _chain(turn: int) -> npt.NDArray[np.float64]:
    """Three steps, of each kind in turn; those are numbered by integers."""
    steps = np.zeros((3, 4))
    for step in range(3):
        kind = (turn + 4 * step) % len(_STEPS)
        steps[step] = np.int64(kind).view(np.float64), *_STEPS[kind]
    return steps


_STEPS = (
    (0.8, 0.5, 1.2),
    (50, 0, 0),
    (0.9, 0, 0),
    (0.01, 0, 0),
    (2, 0, 0),
    (0.7, 0, 0),
    (1, 0.01, 0),
    (6, 0, 0),
    (5, 0, 0),
)
"""Numbers of each kind of step."""


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
