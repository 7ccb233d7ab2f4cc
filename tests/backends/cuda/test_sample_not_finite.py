"""Rows of logits that hold no numbers, on the GPU: the row itself says so, and its neighbours keep their bits."""

import numpy as np
import pytest
import torch

from parkway.backends.reference_sampler import Counters
from parkway.runner import NOT_FINITE, NOTHING_ALLOWED
from parkway.runner.edits import Edits
from tests.backends.cuda.test_sample import FILTERS, GREEDY, Rig, order, random_logits
from tests.backends.cuda.test_sample_edits import NOTHING, EditedRig
from tests.backends.drawn_chains import as_chain, no_edits
from tests.backends.drawn_edits import drawn_edits

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
"""Of NumPy, under the interpreter, of the infinities of rows that have no numbers."""

COLUMNS = 300
GOOD = random_logits(1, COLUMNS)[0]
BROKEN = {
    "all NaN": np.full(COLUMNS, np.nan, np.float32),
    "all -inf": np.full(COLUMNS, -np.inf, np.float32),
    "one +inf": np.where(np.arange(COLUMNS) == 200, np.inf, GOOD).astype(np.float32),
}
every_broken = pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())


@every_broken
def test_a_row_without_a_finite_largest_logit_has_no_token(
    device: torch.device, broken: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> None:
    """Greedy, drawn, filtered, reported or looked up; the rows beside it don't notice."""
    at = Counters(1)
    wanted = [
        order(GREEDY, at, slot=0),
        order(GREEDY, at, top=3),
        order(FILTERS["none"], at),
        order(FILTERS["all"], at, top=3),
        order(GREEDY, at, target=9, top=0),
    ]
    rig, alone = Rig(np.stack([GOOD, broken]), device), Rig(GOOD[None], device)
    made = rig.run([0, 1] * len(wanted), [each for each in wanted for _ in range(2)])
    assert made["token"][1::2].tolist() == [NOT_FINITE] * len(wanted)
    assert made[::2].tobytes() == alone.run([0] * len(wanted), wanted).tobytes()
    assert rig.run([0], wanted[:1]).tobytes() == alone.run([0], wanted[:1]).tobytes(), "the next step"


@every_broken
def test_an_edited_row_tells_whether_its_edits_or_its_logits_leave_no_token(
    device: torch.device, broken: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> None:
    """Twice: what the first step has left must not be seen by the second."""
    rig = EditedRig(np.stack([GOOD, broken]), device)
    chain = no_edits(as_chain([("typ_p", 0.5, 0.0, 0.0)]))
    rows, edits = [1, 0, 1, 0, 1], [drawn_edits("mask", COLUMNS, 1), NOTHING, chain, chain, None]
    for order_of_rows in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0]):
        orders = [order(FILTERS["none"], Counters(1), top=2 * (i % 2)) for i in order_of_rows]
        made = rig.run_edited([rows[i] for i in order_of_rows], orders, [edits[i] for i in order_of_rows])
        tokens = dict(zip(order_of_rows, made["token"].tolist(), strict=True))
        assert [tokens[i] for i in (0, 1, 2, 4)] == [NOT_FINITE, NOTHING_ALLOWED, NOT_FINITE, NOT_FINITE]
        assert tokens[3] >= 0


def test_a_bias_beyond_all_numbers_still_chooses(device: torch.device) -> None:
    ids, ones = np.array([7, 5], np.int32), np.ones(2, np.float32)
    edits = Edits(ids, ones, ones, np.array([np.inf, np.inf], np.float32))
    made = EditedRig(GOOD[None], device).run_edited([0], [order(GREEDY, Counters(1), top=0)], [edits])
    assert made["token"].tolist() == [5]
    assert np.isfinite(made["logprob"]).all()
