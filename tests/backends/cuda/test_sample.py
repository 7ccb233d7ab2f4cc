"""The GPU's sampler against its specification: what is kept, drawn, looked up and reported, and the bits of all that.

Under the interpreter a row takes a good part of a second, so there are fewer of them than on a GPU.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch

from parkway.backends.bit_check import BitCheckFailed, check
from parkway.backends.cuda.sample import ORDER, RESULT, Sampler
from parkway.backends.cuda.sample_row import CHUNK, NOTHING
from parkway.backends.cuda.sample_subjects import subject
from parkway.backends.reference_sampler import Counters, candidates, choose, log_softmax, most_probable, uniform
from parkway.request import SamplingParams
from tests.backends.cuda.interpreted import mend

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    mend()
DRAWS = 1000 if ON_GPU else 4
"""For each filter and row of logits."""

FILTERS = {
    "none": SamplingParams(temperature=0.8),
    "hot": SamplingParams(temperature=3.0),
    "top_k": SamplingParams(top_k=7),
    "top_k of all": SamplingParams(top_k=5000),
    "top_p": SamplingParams(top_p=0.83),
    "top_p of none": SamplingParams(top_p=0.0),
    "min_p": SamplingParams(min_p=0.05, temperature=1.3),
    "min_p of one": SamplingParams(min_p=1.0),
    "all": SamplingParams(temperature=1.7, top_k=40, top_p=0.9, min_p=0.02),
    "sharp": SamplingParams(temperature=0.05, top_k=60, top_p=0.999),
}
every_filter = pytest.mark.parametrize("how", FILTERS.values(), ids=FILTERS.keys())
GREEDY = SamplingParams(temperature=0)

Floats = npt.NDArray[np.float32]


class Rig:
    """A sampler over given rows of logits [rows, vocabulary], with columns behind them that nobody may see."""

    def __init__(self, logits: Floats, device: torch.device) -> None:
        padded = np.pad(logits, ((0, 0), (0, 5)), constant_values=np.inf)
        self.logits = torch.from_numpy(padded).to(device)
        self.sampler = Sampler(logits.shape[1], 64, device)
        self.last_tokens = torch.full((64,), -1, dtype=torch.int32, device=device)

    def run(self, rows: Sequence[int], orders: Sequence[npt.NDArray[np.void]]) -> npt.NDArray[np.void]:
        """Results for the logits of some rows, each by its orders."""
        words = torch.from_numpy(np.array(orders).view(np.int32).reshape(len(orders), -1)).to(self.logits.device)
        results = torch.full((len(orders), RESULT.itemsize // 4), -7, dtype=torch.int32, device=words.device)
        self.sampler.run(self.logits[list(rows)], words, self.last_tokens, results, len(orders), pdl=False)
        return results.cpu().numpy().view(RESULT)[:, 0]

    def drawn(self, row: int, how: SamplingParams, counters: Sequence[Counters]) -> list[int]:
        orders = [order(how, each) for each in counters]
        parts = (orders[at : at + 64] for at in range(0, len(orders), 64))
        return [token for part in parts for token in self.run([row] * len(part), part)["token"].tolist()]


def order(
    how: SamplingParams, counters: Counters, *, target: int = -1, top: int = -1, slot: int = -1
) -> npt.NDArray[np.void]:
    made = np.zeros((), ORDER)
    made["temperature"], made["top_k"], made["top_p"], made["min_p"] = how.temperature, how.top_k, how.top_p, how.min_p
    made["target"], made["top"], made["slot"] = target, top, slot
    made["seed_low"], made["seed_high"] = counters.seed & (2**32 - 1), counters.seed >> 32
    made["prompt_index"], made["choice_index"] = counters.prompt_index, counters.choice_index
    made["position"] = counters.position
    return made


def spread(count: int) -> list[Counters]:
    """Counters whose draws rise from next to 0 to next to 1, about evenly."""
    drawn = sorted((Counters(7, position=position) for position in range(2000)), key=uniform)
    return [drawn[1999 * i // (count - 1)] for i in range(count)]


def random_logits(rows: int, vocabulary: int) -> Floats:
    return np.random.default_rng(vocabulary).standard_normal((rows, vocabulary), np.float32) * np.float32(2)


def test_it_draws_what_the_generator_says(device: torch.device) -> None:
    """4,096 equally probable tokens: the token is the first 12 bits of the draw."""
    rig = Rig(np.zeros((1, 4096), np.float32), device)
    random = np.random.default_rng(1)
    words = random.integers(0, 2**31, (DRAWS * 5, 3)).tolist()
    seeds = random.integers(0, 2**64, DRAWS * 5, np.uint64).tolist()
    counters = [Counters(0), Counters(2**64 - 1), *(Counters(s, *w) for s, w in zip(seeds, words, strict=True))]
    assert rig.drawn(0, SamplingParams(), counters) == [int(uniform(each) * 4096) for each in counters]


@every_filter
def test_tokens_are_those_of_the_specification(device: torch.device, how: SamplingParams) -> None:
    logits = random_logits(3, 101)
    rig = Rig(logits, device)
    for row in range(3):
        counters = [Counters(11, position=position) for position in range(DRAWS)]
        exact = logits[row].astype(np.float64)
        drawn = rig.drawn(row, how, counters)
        assert drawn == [choose(exact, how, each) for each in counters]
        assert set(drawn) <= set(candidates(exact, how))


@every_filter
def test_a_vocabulary_of_several_chunks_gives_the_tokens_of_the_specification(
    device: torch.device, how: SamplingParams
) -> None:
    logits = random_logits(1, 2 * CHUNK + 99)
    counters = [Counters(3, position=position) for position in range(DRAWS // 2)]
    wanted = [choose(logits[0].astype(np.float64), how, each) for each in counters]
    assert Rig(logits, device).drawn(0, how, counters) == wanted


def test_a_draw_goes_to_the_end_of_what_is_kept(device: torch.device) -> None:
    """Positions whose draws are the smallest and largest of many fall on the first and last candidate."""
    logits = random_logits(1, 40)
    how, counters = SamplingParams(top_k=9), spread(2)
    kept = candidates(logits[0].astype(np.float64), how)
    assert Rig(logits, device).drawn(0, how, counters) == [kept[0], kept[-1]]


def test_greedy_takes_the_largest_logit_and_of_equal_ones_the_lower_id(device: torch.device) -> None:
    logits = random_logits(6, 3 * CHUNK)
    logits[1, [5000, 12, 40]] = 30
    logits[2] = -5
    logits[3, -1] = 30
    logits[4] = -0.0
    logits[4, 77] = 0
    logits[5, :100] = np.nan
    made = Rig(logits, device).run(range(6), [order(GREEDY, Counters(0))] * 6)
    wanted = [int(logits[0].argmax()), 12, 0, 3 * CHUNK - 1, 0, int(np.nanargmax(logits[5]))]
    assert made["token"].tolist() == wanted


def test_of_equal_weights_the_lower_ids_are_kept(device: torch.device) -> None:
    logits = np.zeros((1, 64), np.float32)
    logits[0, 50] = 1
    rig, counters = Rig(logits, device), spread(7)
    exact = logits[0].astype(np.float64)
    half = SamplingParams(top_p=(np.e + 1.5) / (np.e + 63))
    for how, kept in ((SamplingParams(top_k=3), {50, 0, 1}), (half, {50, 0, 1}), (SamplingParams(min_p=1), {50})):
        drawn = rig.drawn(0, how, counters)
        assert drawn == [choose(exact, how, each) for each in counters]
        assert set(drawn) == kept


def test_a_share_that_is_met_exactly_ends_there(device: torch.device) -> None:
    logits = np.zeros((1, 64), np.float32)
    rig, how = Rig(logits, device), SamplingParams(top_p=0.0625)
    counters = spread(8)
    drawn = rig.drawn(0, how, counters)
    assert drawn == [choose(logits[0].astype(np.float64), how, each) for each in counters]
    assert set(drawn) == {0, 1, 2, 3}


def test_log_probabilities_are_those_of_the_unmodified_distribution(device: torch.device) -> None:
    logits = random_logits(4, 333) * np.float32(3)
    how = SamplingParams(temperature=0.4, top_k=2)
    made = Rig(logits, device).run(range(4), [order(how, Counters(row), top=20) for row in range(4)])
    for row, result in enumerate(made):
        exact = log_softmax(logits[row].astype(np.float64))
        assert abs(result["logprob"] - exact[result["token"]]) < 2e-6
        assert result["top_ids"].tolist() == most_probable(exact, 20)
        np.testing.assert_allclose(result["top_logprobs"], exact[result["top_ids"]], atol=2e-6, rtol=0)


def test_the_most_probable_are_sorted_with_equal_ones_by_id_and_as_many_as_asked(device: torch.device) -> None:
    logits = np.zeros((1, 40), np.float32)
    logits[0, [30, 7]] = 2
    made = Rig(logits, device).run([0] * 3, [order(GREEDY, Counters(0), top=top) for top in (5, 1, 0)])
    assert made[0]["top_ids"].tolist() == [7, 30, 0, 1, 2] + [0] * 15
    assert made[1]["top_ids"].tolist() == [7] + [0] * 19
    assert made[1]["top_logprobs"][0] == made[0]["top_logprobs"][1] == made[2]["logprob"]
    assert not made[2]["top_logprobs"].any()


def test_no_more_are_reported_than_there_are(device: torch.device) -> None:
    made = Rig(np.zeros((1, 3), np.float32), device).run([0], [order(SamplingParams(), Counters(0), top=20)])
    assert made["top_ids"][0].tolist() == [0, 1, 2] + [0] * 17
    assert made["top_logprobs"][0].tolist() == [made["logprob"][0]] * 3 + [0] * 17


def test_a_target_is_looked_up_instead_of_drawn(device: torch.device) -> None:
    logits = random_logits(1, 50)
    exact = log_softmax(logits[0].astype(np.float64))
    orders = [order(SamplingParams(), Counters(0), target=t, top=top) for t, top in ((0, 0), (49, 3), (7, -1))]
    made = Rig(logits, device).run([0] * 3, orders)
    assert made["token"].tolist() == [0, 49, 7]
    np.testing.assert_allclose(made["logprob"][:2], exact[[0, 49]], atol=2e-6, rtol=0)
    assert made["top_ids"][1].tolist() == most_probable(exact, 3) + [0] * 17
    assert made["logprob"][2] == 0


def test_a_token_is_stored_for_its_slot_alone(device: torch.device) -> None:
    rig = Rig(random_logits(1, 50), device)
    hows = (GREEDY, SamplingParams(), SamplingParams(top_k=3), GREEDY)
    orders = [order(how, Counters(1), slot=slot) for how, slot in zip(hows, (5, 0, 63, -1), strict=True)]
    made = rig.run([0] * 4, orders)
    stored = rig.last_tokens.tolist()
    assert [stored[5], stored[0], stored[63]] == made["token"][:3].tolist()
    assert sum(token != -1 for token in stored) == 3


@pytest.mark.parametrize("how", [FILTERS[name] for name in ("none", "top_k", "top_p", "all")])
def test_a_row_that_is_its_own_list_gives_the_same_bits(device: torch.device, how: SamplingParams) -> None:
    """As one of which more candidates matter than its list holds; and whoever shares the work, it is the same."""
    logits = random_logits(2, CHUNK + 700)
    logits[1] = np.round(logits[1])
    orders = [order(how, Counters(3, position=row), top=row * 7) for row in range(2)]
    expected = Rig(logits, device).run(range(2), orders)
    rig = Rig(logits, device)
    rig.sampler.list_ids, rig.sampler.programs = 8, 1
    assert rig.run(range(2), orders).tobytes() == expected.tobytes()


def test_scratch_is_left_as_it_was_found(device: torch.device) -> None:
    made = subject(device, 3, 20 if ON_GPU else 8, 300)
    made.output(made.candidates[0], slice(0, made.rows))
    assert (made.sampler._best == NOTHING.value).all()
    assert not made.sampler._lengths.any()


def test_rows_alone_are_as_among_strangers(device: torch.device) -> None:
    verdict = check([subject(device, 1, 64 if ON_GPU else 12, 50_003 if ON_GPU else 300)], torch.equal)
    assert verdict.comparisons == 3
    assert not verdict.dropped


def test_the_check_finds_a_generator_that_knows_its_row(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Sampler.run

    def run_by_row(self: Sampler, logits: torch.Tensor, orders: torch.Tensor, *others: object, **named: object) -> None:
        by_row = orders.clone()
        by_row[:, list(ORDER.names or ()).index("position")] += torch.arange(len(orders), device=orders.device)
        run(self, logits, by_row, *others, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Sampler, "run", run_by_row)
    with pytest.raises(BitCheckFailed, match="sample"):
        check([subject(device, 1, 12, 300)], torch.equal)
