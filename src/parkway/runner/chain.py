"""The samplers that a request asks for, in its order, as numbers; where it asks for the usual ones, there is no chain.

Knows no backend. `backends/reference_sampler.py` says what each step does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from parkway.request import SamplingParams

KINDS = ("temperature", "top_k", "top_p", "min_p", "top_n_sigma", "typ_p", "xtc", "mirostat", "mirostat_2")
"""Of steps, by number."""
MIROSTAT = KINDS.index("mirostat")
STEP = np.dtype([("kind", "<i8"), ("a", "<f8"), ("b", "<f8"), ("c", "<f8")])
"""A step and its numbers, those that it has."""
Chain = npt.NDArray[np.void]
Step = tuple[str, float, float, float]

ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
"""llama-server's, which holds where a sampler is asked for that Parkway does not have by default."""
_USUAL = ("temperature", "top_k", "top_p", "min_p")
_MAY_DROP_THE_FIRST = frozenset({"typ_p", "xtc"})


def steps_of(how: SamplingParams) -> list[Step] | None:
    """In order, without those that do nothing; None where the usual samplers in the usual order choose the same.

    A step of mirostat has its number from token to token, so it has none yet.
    """
    if how.mirostat:
        return [_step("temperature", how), (KINDS[MIROSTAT - 1 + how.mirostat], 0.0, 0.0, 0.0)]
    steps = [_step(name, how) for name in how.samplers or ORDER if name in KINDS]
    steps = [step for step in steps if _acts(step)]
    return None if _is_usual([step[0] for step in steps], how) else steps


def chain_of(how: SamplingParams) -> Chain | None:
    """The same as the samplers read it."""
    steps = steps_of(how)
    return None if steps is None else np.array([(KINDS.index(kind), *numbers) for kind, *numbers in steps], STEP)


def first_mu(how: SamplingParams) -> float:
    """The surprise in bits that mirostat allows the first token of an answer."""
    return 2 * how.mirostat_tau


def next_mu(how: SamplingParams, mu: float, surprise: float) -> float:
    """… and the next, after a token with this surprise."""
    return mu - how.mirostat_eta * (surprise - how.mirostat_tau)


def _step(name: str, how: SamplingParams) -> Step:
    numbers: dict[str, tuple[Any, ...]] = {
        "temperature": (how.temperature, how.dynatemp_range, how.dynatemp_exponent),
        "top_k": (how.top_k,),
        "top_p": (how.top_p,),
        "min_p": (how.min_p,),
        "top_n_sigma": (how.top_n_sigma,),
        "typ_p": (how.typical_p,),
        "xtc": (how.xtc_probability, how.xtc_threshold),
    }
    a, b, c = (*map(float, numbers[name]), 0.0, 0.0)[:3]
    return name, a, b, c


def _acts(step: Step) -> bool:
    name, a, b, _ = step
    match name:
        case "temperature":
            return a != 1 or b > 0
        case "top_p" | "typ_p":
            return a < 1
        case "xtc":
            return a > 0 and b <= 0.5  # no two tokens can have more than half
        case _:
            return a > 0


def _is_usual(names: Sequence[str], how: SamplingParams) -> bool:
    """Whether they choose the token that the usual order does, which takes less time."""
    if how.temperature == 0 and how.dynatemp_range == 0 and "temperature" in names:
        return not _MAY_DROP_THE_FIRST & {*names}
    if how.dynatemp_range > 0 or not {*names} <= {*_USUAL}:
        return False
    if not how.samplers:
        return True
    usual = [name for name in _USUAL if _acts(_step(name, how))]
    # top_k finds the same tokens at any temperature
    free = set() if {"top_p", "min_p"} & {*names} else {"temperature"}
    left, wanted = ([name for name in each if name not in free] for each in (names, usual))
    return left == wanted and {*usual} == {*names}
