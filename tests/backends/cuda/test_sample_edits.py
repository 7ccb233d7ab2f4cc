"""The GPU's sampler where rows have edits: tokens of the edited logits, reports of the others, neighbours as ever.

Under the interpreter a row takes a good part of a second, so there are few.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch

from parkway.backends.bit_check import BitCheckFailed, check
from parkway.backends.cuda import sample
from parkway.backends.cuda.device import Device
from parkway.backends.cuda.sample import RESULT, Sampler
from parkway.backends.cuda.sample_edits import BLOCK, EDIT_WORDS
from parkway.backends.cuda.sample_row import CHUNK
from parkway.backends.cuda.sample_subjects import edited_subject
from parkway.backends.reference_sampler import Counters, choose, edited
from parkway.request import SamplingParams
from parkway.runner.cuda_edits import PinnedEdits
from parkway.runner.edits import Edits
from tests.backends.cuda.interpreted import mend
from tests.backends.cuda.test_sample import FILTERS, GREEDY, ON_GPU, Floats, Rig, order, random_logits
from tests.backends.drawn_edits import drawn_edits, every_kind

if not ON_GPU:
    mend()

NOTHING = drawn_edits("mask", 300, 0)._replace(mask=np.zeros(10, np.uint32))
"""Is allowed, of 300."""


class EditedRig(Rig):
    """Rows of logits and the edits of some."""

    def __init__(self, logits: Floats, device: torch.device) -> None:
        super().__init__(logits, device)
        self.pinned = PinnedEdits(Device(device.type))

    def run_edited(
        self, rows: Sequence[int], orders: Sequence[npt.NDArray[np.void]], edits: Sequence[Edits | None]
    ) -> npt.NDArray[np.void]:
        """As `run`, with the edits of each row that has some."""
        on, count = self.logits.device, len(rows)
        headers, place = np.zeros((count, EDIT_WORDS), np.int32), np.zeros(2, np.int32)
        self.pinned.write([(row, each) for row, each in enumerate(edits) if each], headers, place)
        words = torch.from_numpy(np.array(orders).view(np.int32).reshape(count, -1)).to(on)
        results = torch.full((count, RESULT.itemsize // 4), -7, dtype=torch.int32, device=on)
        sent = torch.from_numpy(headers).to(on), torch.from_numpy(place).to(on).view(torch.int64)
        self.sampler.run_edited(self.logits[list(rows)], words, *sent, self.last_tokens, results, count, pdl=False)
        return results.cpu().numpy().view(RESULT)[:, 0]


@every_kind
@pytest.mark.parametrize("how", [GREEDY, FILTERS["none"], FILTERS["all"]], ids=["greedy", "none", "all"])
def test_a_token_is_chosen_from_the_edited_logits(device: torch.device, kind: str, how: SamplingParams) -> None:
    """And what is reported is of the logits as they were, bit for bit what a look at that token tells."""
    logits = random_logits(2, CHUNK + 333)
    rig = EditedRig(logits, device)
    edits = [drawn_edits(kind, logits.shape[1], seed) for seed in range(2)]
    counters = [Counters(5, position=row) for row in range(2)]
    orders = [order(how, counters[row], top=5 * row, slot=row) for row in range(2)]
    made = rig.run_edited(range(2), orders, edits)
    for row in range(2):
        wanted = choose(edited(logits[row], *edits[row]).astype(np.float64), how, counters[row])
        assert made[row]["token"] == wanted == rig.last_tokens[row]
    targets = [order(how, counters[row], top=5 * row, target=int(made[row]["token"])) for row in range(2)]
    assert rig.run(range(2), targets).tobytes() == made.tobytes()


def test_an_edit_rounds_twice(device: torch.device) -> None:
    """Fused, the product would keep the bits below its last one, and another token would win."""
    logits = np.array([[1.0, 1 + 2.0**-12]], np.float32)
    shrink, offset = (np.array(each, np.float32) for each in ([1 + 2.0**-12, 1], [-(1 + 2.0**-11), -1]))
    edits = Edits(np.array([1, 0], np.int32), shrink, shrink, offset)
    assert edited(logits[0], *edits).tolist() == [0, 0]
    assert EditedRig(logits, device).run_edited([0], [order(GREEDY, Counters(0))], [edits])["token"] == [0]


def test_more_ids_than_the_programs_of_a_row_take_at_once(device: torch.device) -> None:
    vocabulary = 2 * BLOCK.value * (sample.MOVERS if ON_GPU else 1) + 77
    logits = random_logits(1, vocabulary)
    ids = np.arange(vocabulary, dtype=np.int32)[::-1].copy()
    ones = np.ones(vocabulary, np.float32)
    edits = Edits(ids, ones, ones, np.where(ids % 2, np.float32(3), np.float32(-np.inf)))
    wanted = edited(logits[0], *edits).argmax()
    assert EditedRig(logits, device).run_edited([0], [order(GREEDY, Counters(0))], [edits])["token"] == [wanted]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("how", [GREEDY, FILTERS["none"], FILTERS["all"]], ids=["greedy", "none", "all"])
def test_there_is_no_token_where_none_is_allowed(device: torch.device, how: SamplingParams) -> None:
    """Nor where all that is allowed is no number. Whoever asks for the slot's last token finds some token."""
    logits = random_logits(3, 300)
    logits[1, 31] = np.nan
    only = NOTHING._replace(mask=np.array([1 << 31, *[0] * 9], np.uint32))
    rig = EditedRig(logits, device)
    orders = [order(how, Counters(1), top=top, slot=slot) for slot, top in enumerate((-1, 3, 3))]
    made = rig.run_edited(range(3), orders, [NOTHING, only, None])
    assert made["token"][:2].tolist() == [-1, -1]
    assert rig.last_tokens[:2].tolist() == [0, 0]
    assert made[2:].tobytes() == rig.run([2], orders[2:]).tobytes()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_a_row_alone_is_as_among_rows_with_other_edits(device: torch.device) -> None:
    verdict = check([edited_subject(device, 1, 64 if ON_GPU else 12, 50_003 if ON_GPU else 300)], torch.equal)
    assert verdict.comparisons == 3
    assert not verdict.dropped


def test_rows_without_edits_are_as_if_nobody_had_some(device: torch.device) -> None:
    logits = random_logits(6, 700)
    kinds = (None, "numbers", "mask", None, None, "both")
    edits = [drawn_edits(kind, 700, row) if kind else None for row, kind in enumerate(kinds)]
    hows = (GREEDY, GREEDY, FILTERS["all"], FILTERS["all"], FILTERS["none"], FILTERS["none"])
    orders = [order(how, Counters(9, position=row), top=4, slot=row) for row, how in enumerate(hows)]
    rig = EditedRig(logits, device)
    made = rig.run_edited(range(6), orders, edits)
    plain = [row for row in range(6) if not edits[row]]
    assert made[plain].tobytes() == rig.run(plain, [orders[row] for row in plain]).tobytes()
    for row in range(6):
        assert rig.run_edited([row], [orders[row]], [edits[row]]).tobytes() == made[row].tobytes()


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_the_check_finds_edits_of_a_neighbour(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Sampler.run_edited

    def run_beside(
        self: Sampler, logits: torch.Tensor, orders: torch.Tensor, edits: torch.Tensor, *more: object
    ) -> None:
        run(self, logits, orders, edits.roll(1, 0), *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Sampler, "run_edited", run_beside)
    with pytest.raises(BitCheckFailed, match="sample_edited"):
        check([edited_subject(device, 1, 12, 300)], torch.equal)


def test_memory_grows_with_what_is_to_be_edited(device: torch.device) -> None:
    pinned = PinnedEdits(Device(device.type))
    headers, place = np.zeros((3, EDIT_WORDS), np.int32), np.zeros(2, np.int32)
    for vocabulary in (900, 90_000, 300):
        pinned.write([(2, drawn_edits("both", vocabulary, 0)), (0, drawn_edits("mask", vocabulary, 1))], headers, place)
        ids, words = vocabulary // 3, -(-vocabulary // 32)
        numbers = [[0, 4 * ids + words, 4 * ids + words], [-1, -1, -1], [ids, 0, 4 * ids]]
        assert headers.tolist() == [[*each, -1, -1] for each in numbers]
        assert place.view(np.int64)[0] == pinned._memory.data_ptr()
        assert len(pinned._memory) >= 4 * ids + 2 * words
