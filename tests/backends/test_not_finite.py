"""Rows of logits that hold no numbers, on the CPU: the row itself says so, and its neighbours keep their bits."""

from typing import Any

import numpy as np
import pytest

from parkway.backends.reference_sampler import Counters, log_softmax, most_probable
from parkway.request import SamplingParams
from parkway.runner import NOT_FINITE
from parkway.runner.edits import Edits
from tests.backends.drawn_chains import as_chain, no_edits
from tests.backends.drawn_edits import drawn_edits
from tests.backends.rig import ISAS, Float32s
from tests.backends.test_sampler import FILTERS, SamplerRig, order, random_logits

HOWS = {"greedy": SamplingParams(temperature=0), **FILTERS}
BROKEN = {
    "all NaN": np.full(333, np.nan, np.float32),
    "all -inf": np.full(333, -np.inf, np.float32),
    "one +inf": np.where(np.arange(333) == 200, np.inf, random_logits(1, 333)[0]).astype(np.float32),
    "all of them": np.resize(np.array([np.nan, np.inf, -np.inf], np.float32), 333),
}
every_broken = pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())


def holed(logits: Float32s) -> Float32s:
    """With NaN and -inf among the numbers, at the ends and at the largest too."""
    made = logits.copy()
    made[:, [0, 17, -1]] = np.nan
    made[np.arange(len(made)), logits.argmax(1)] = np.nan
    made[:, [3, 40]] = -np.inf
    return made


@every_broken
@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS.keys())
@pytest.mark.parametrize("isa", ISAS)
def test_a_row_without_a_finite_largest_logit_has_no_token(broken: Float32s, how: SamplingParams, isa: str) -> None:
    """Drawn, edited, reported or looked up; the rows beside it don't notice."""
    good = random_logits(1, 333)[0]
    rig = SamplerRig(np.stack([good, broken]), isa=isa)
    edits = drawn_edits("both", 333, 1)
    ways: list[dict[str, Any]] = [{}, {"top": 5}, {"edits": edits}, {"edits": edits, "top": 5}, {"target": 9, "top": 5}]
    wanted = [order(how, Counters(1, position=at), **way) for at, way in enumerate(ways)]
    made = rig.run([0, 1] * len(ways), [each for each in wanted for _ in range(2)])
    alone = SamplerRig(good[None], isa=isa).run([0] * len(ways), wanted)
    assert [sample.token for sample in made[1::2]] == [NOT_FINITE] * len(ways)
    assert [bytes(sample) for sample in made[::2]] == [bytes(sample) for sample in alone]


@every_broken
def test_a_chain_of_samplers_has_no_token_either(broken: Float32s) -> None:
    edits = no_edits(as_chain([("typ_p", 0.5, 0.0, 0.0), ("xtc", 1.0, 0.1, 0.0)]))
    made = SamplerRig(broken[None]).run([0], [order(SamplingParams(), Counters(1), edits=edits)])
    assert made[0].token == NOT_FINITE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS.keys())
def test_what_is_no_number_counts_as_impossible(how: SamplingParams, isa: str) -> None:
    """In a row that has a largest number. What is reported of such a token is -inf."""
    logits = holed(random_logits(3, 333))
    impossible = np.where(np.isnan(logits), np.float32(-np.inf), logits)
    orders = [order(how, Counters(3, position=at), top=20) for at in range(3)]
    orders += [order(how, Counters(3), top=20, target=17), order(how, Counters(3), top=20, target=18)]
    made, meant = (SamplerRig(each, isa=isa).run([0, 1, 2, 0, 0], orders) for each in (logits, impossible))
    assert [bytes(sample) for sample in made] == [bytes(sample) for sample in meant]
    assert made[3].logprob == -np.inf < made[4].logprob
    exact = log_softmax(impossible[0].astype(np.float64))
    assert list(made[0].top_ids) == most_probable(exact, 20)


def test_a_bias_beyond_all_numbers_still_chooses() -> None:
    """A finite row stays so, whatever is asked of it: an edited logit is the largest number at most."""
    logits = random_logits(1, 333)
    ids, ones = np.array([7, 5], np.int32), np.ones(2, np.float32)
    edits = Edits(ids, ones, ones, np.array([np.inf, np.inf], np.float32))
    made = SamplerRig(logits).run([0], [order(SamplingParams(temperature=0), Counters(1), top=0, edits=edits)])
    assert made[0].token == 5
    assert np.isfinite(made[0].logprob)
