"""Chains of samplers and logits of every kind for them, for tests of both samplers."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from parkway.backends.reference_sampler import Step
from parkway.runner.chain import KINDS, STEP, Chain
from parkway.runner.edits import Edits

VOCABULARY = 300


def no_edits(chain: Chain | None) -> Edits:
    none = np.empty(0, np.float32)
    return Edits(np.empty(0, np.int32), none, none, none, None, chain)


def as_chain(steps: Sequence[Step]) -> Chain:
    return np.array([(KINDS.index(kind), *numbers) for kind, *numbers in steps], STEP)


def logits_of(kind: int, vocabulary: int = VOCABULARY) -> npt.NDArray[np.float32]:
    """Smooth, peaked, many equal, all equal, mostly impossible, far apart."""
    chance = np.random.default_rng(kind)
    x = chance.standard_normal(vocabulary).astype(np.float32)
    match kind:
        case 0:
            return x * np.float32(2)
        case 1:
            return np.where(x > 2, x * 6, x)
        case 2:
            return np.round(x * 2)
        case 3:
            return x * 0
        case 4:
            x[chance.random(vocabulary) < 0.95] = -np.inf
            x[3] = np.nan
            return x
        case _:
            return x * np.float32(60)
