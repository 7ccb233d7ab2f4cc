"""Random edits of every kind, for tests of both samplers."""

import numpy as np
import pytest

from parkway.runner.edits import Edits

KINDS = ("numbers", "mask", "both", "all forbidden but one")
every_kind = pytest.mark.parametrize("kind", KINDS)


def drawn_edits(kind: str, vocabulary: int, seed: int) -> Edits:
    """Numbers for a third of the ids, of which some are forbidden; a mask that allows about half of all."""
    chance = np.random.default_rng(seed)
    ids = chance.permutation(vocabulary)[: vocabulary // 3].astype(np.int32)
    shrink, grow, offset = (chance.random((3, len(ids)), np.float32) * np.float32(2)) + np.float32(0.1)
    offset[chance.random(len(ids)) < 0.2] = -np.inf
    mask = chance.integers(0, 2**32, -(-vocabulary // 32), dtype=np.uint32)
    if kind == "all forbidden but one":
        mask[:] = 0
        mask[seed % (vocabulary // 32)] = 1 << 17
    if kind != "numbers" and kind != "both":
        ids, shrink, grow, offset = ids[:0], shrink[:0], grow[:0], offset[:0]
    return Edits(ids, shrink, grow, offset, None if kind == "numbers" else mask)
