"""The exactness contract on a real file: Gemma 3 270M, whose matrices are of four types, head of 262,144 rows."""

from pathlib import Path

import pytest

from tests.backends.rig import Rig
from tests.models.runs import Logits, Steps, cpu_model, logits_of

LENGTH = 48


def steps(tokens: int) -> Steps:
    return [[(0, at) for at in range(start, min(start + tokens, LENGTH))] for start in range(0, LENGTH, tokens)]


@pytest.fixture(scope="module")
def rig(gemma3: Path) -> Rig:
    return cpu_model(gemma3, activations="int8", threads=2)


@pytest.fixture(scope="module")
def expected(rig: Rig) -> Logits:
    """A prompt in one step; every token of it makes a difference."""
    made = logits_of(rig, steps(LENGTH))
    assert len(set(made.values())) == LENGTH
    return made


@pytest.mark.parametrize("tokens", [1, 5, 17])
def test_chunks_and_decoding(rig: Rig, expected: Logits, tokens: int) -> None:
    rig.pool.array()[:] = 0xFF
    assert logits_of(rig, steps(tokens)) == expected


def test_beside_others(rig: Rig, expected: Logits) -> None:
    others = [[*step, (1, at), (2, at)] for at, step in enumerate(steps(3))]
    made = logits_of(rig, others)
    assert {place: made[place] for place in expected} == expected
