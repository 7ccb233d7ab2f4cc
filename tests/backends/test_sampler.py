"""The sampler against its specification: the generator, what is kept, what is drawn, what is reported."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from parkway.backends.cpu.arena import Value
from parkway.backends.cpu.library import RowEdits, Sample
from parkway.backends.cpu.recorder import Recorder
from parkway.backends.reference import ReferenceStep
from parkway.backends.reference_sampler import (
    Counters,
    candidates,
    choose,
    edited,
    log_softmax,
    most_probable,
    philox,
    uniform,
)
from parkway.request import SamplingParams
from parkway.runner.cpu_runner import row_edits
from parkway.runner.edits import Edits
from tests.backends.drawn_edits import drawn_edits, every_kind
from tests.backends.rig import ISAS, CpuPack, Float32s, Rig, raw_tensor

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
}
every_filter = pytest.mark.parametrize("how", FILTERS.values(), ids=FILTERS.keys())


class SamplerRig:
    """Samples from given rows of logits [rows, vocabulary]."""

    def __init__(self, logits: Float32s, *, isa: str = ISAS[-1], threads: int = 1) -> None:
        self.vocabulary = logits.shape[1]
        padded = np.pad(logits, ((0, 0), (0, -self.vocabulary % 32)), constant_values=1e4)
        self._table = CpuPack().matrix(raw_tensor("logits", "F32", padded))
        self._rig = Rig(self._record, isa=isa, threads=threads)

    def _record(self, recorder: Recorder) -> list[Value]:
        logits = recorder.take(recorder.embed(self._table))
        recorder.sample(logits, self.vocabulary)
        return [logits]

    def run(self, rows: Sequence[int], orders: Sequence[Sample]) -> list[Sample]:
        samples = (Sample * len(orders))(*orders)
        self._rig.run(ReferenceStep(rows, [0] * len(rows), [(0,)] * len(rows), range(len(rows))), samples)
        return list(samples)

    def drawn(self, row: int, how: SamplingParams, counters: Sequence[Counters]) -> list[int]:
        orders = [order(how, each) for each in counters]
        made = [self.run([row] * len(part), part) for part in (orders[i : i + 256] for i in range(0, len(orders), 256))]
        return [sample.token for part in made for sample in part]


def order(
    how: SamplingParams,
    counters: Counters,
    *,
    target: int = -1,
    top: int = -1,
    edits: Edits | None = None,
    draw: int = 0,
) -> Sample:
    """`edits` must live as long as the order."""
    return Sample(
        edits=RowEdits() if edits is None else row_edits(edits),
        temperature=how.temperature,
        top_p=how.top_p,
        min_p=how.min_p,
        top_k=how.top_k,
        target=target,
        top=top,
        seed=counters.seed,
        prompt_index=counters.prompt_index,
        choice_index=counters.choice_index,
        position=counters.position,
        draw=draw,
    )


def random_logits(rows: int, vocabulary: int) -> Float32s:
    return np.random.default_rng(vocabulary).standard_normal((rows, vocabulary), np.float32) * np.float32(2)


def test_philox_gives_the_published_answers() -> None:
    word = 0xFFFFFFFF
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox((word, word, word, word), (word, word)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    pi = philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0))
    assert pi == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_the_kernel_draws_what_the_generator_says() -> None:
    """65,536 equally probable tokens: the token is the first 16 bits of the draw."""
    rig = SamplerRig(np.zeros((1, 2**16), np.float32))
    random = np.random.default_rng(1)
    words = random.integers(0, 2**31, (500, 3)).tolist()
    seeds = random.integers(0, 2**64, 500, np.uint64).tolist()
    counters = [Counters(0), Counters(2**64 - 1), *(Counters(s, *w) for s, w in zip(seeds, words, strict=True))]
    assert rig.drawn(0, SamplingParams(), counters) == [int(uniform(each) * 2**16) for each in counters]
    assert int(uniform(Counters(0)) * 2**32) == 0x6627E8D5


@pytest.mark.parametrize("field", ["seed", "prompt_index", "choice_index", "position"])
def test_every_counter_changes_the_draws(field: str) -> None:
    rig = SamplerRig(np.zeros((1, 2**16), np.float32))
    base = [Counters(5, 1, 2, position) for position in range(64)]
    others = [replace(each, **{field: getattr(each, field) + 64}) for each in base]
    drawn = (rig.drawn(0, SamplingParams(), counters) for counters in (base, others))
    assert sum(a == b for a, b in zip(*drawn, strict=True)) <= 1


@every_filter
@pytest.mark.parametrize("isa", ISAS)
def test_tokens_are_those_of_the_specification(how: SamplingParams, isa: str) -> None:
    logits = random_logits(3, 101)
    rig = SamplerRig(logits, isa=isa)
    for row in range(3):
        counters = [Counters(11, position=position) for position in range(700)]
        exact = logits[row].astype(np.float64)
        drawn = rig.drawn(row, how, counters)
        assert drawn == [choose(exact, how, each) for each in counters]
        assert set(drawn) <= set(candidates(exact, how))


@every_filter
def test_a_large_vocabulary_gives_the_tokens_of_the_specification(how: SamplingParams) -> None:
    logits = random_logits(1, 4999)
    counters = [Counters(3, position=position) for position in range(100)]
    wanted = [choose(logits[0].astype(np.float64), how, each) for each in counters]
    assert SamplerRig(logits).drawn(0, how, counters) == wanted


def test_draws_have_the_frequencies_of_the_distribution() -> None:
    """Pearson's statistic over 12,800 draws of 12 tokens; chance gives more than 31.3 once in a thousand."""
    logits = random_logits(1, 12)
    drawn = SamplerRig(logits).drawn(0, SamplingParams(), [Counters(8, position=p) for p in range(12800)])
    expected = np.exp(log_softmax(logits[0].astype(np.float64))) * len(drawn)
    assert ((np.bincount(drawn, minlength=12) - expected) ** 2 / expected).sum() < 31.3


def test_greedy_takes_the_largest_logit_and_of_equal_ones_the_lower_id() -> None:
    logits = random_logits(4, 70)
    logits[1, [66, 12, 40]] = 30
    logits[2] = -5
    logits[3, 69] = 30
    made = SamplerRig(logits).run(range(4), [order(SamplingParams(temperature=0), Counters(0))] * 4)
    assert [sample.token for sample in made] == [int(logits[0].argmax()), 12, 0, 69]


def test_of_equal_weights_the_lower_ids_are_kept() -> None:
    logits = np.zeros((1, 64), np.float32)
    logits[0, 50] = 1
    rig, counters = SamplerRig(logits), [Counters(2, position=position) for position in range(500)]
    assert set(rig.drawn(0, SamplingParams(top_k=3), counters)) == {50, 0, 1}
    assert set(rig.drawn(0, SamplingParams(top_p=(np.e + 1.5) / (np.e + 63)), counters)) == {50, 0, 1}
    assert set(rig.drawn(0, SamplingParams(min_p=1), counters)) == {50}


@pytest.mark.parametrize("isa", ISAS)
def test_log_probabilities_are_those_of_the_unmodified_distribution(isa: str) -> None:
    logits = random_logits(8, 333) * np.float32(3)
    how = SamplingParams(temperature=0.4, top_k=2)
    made = SamplerRig(logits, isa=isa).run(range(8), [order(how, Counters(row), top=20) for row in range(8)])
    for row, sample in enumerate(made):
        exact = log_softmax(logits[row].astype(np.float64))
        assert abs(sample.logprob - exact[sample.token]) < 1e-5
        assert list(sample.top_ids) == most_probable(exact, 20)
        np.testing.assert_allclose(list(sample.top_logprobs), exact[list(sample.top_ids)], atol=1e-5, rtol=0)


def test_the_most_probable_are_sorted_with_equal_ones_by_id_and_as_many_as_asked() -> None:
    logits = np.zeros((1, 40), np.float32)
    logits[0, [30, 7]] = 2
    made = SamplerRig(logits).run([0] * 3, [order(SamplingParams(), Counters(0), top=top) for top in (5, 1, 0)])
    assert list(made[0].top_ids)[:5] == [7, 30, 0, 1, 2]
    assert list(made[1].top_ids)[:2] == [7, 0]
    assert list(made[2].top_logprobs) == [0] * 20


def test_a_target_is_looked_up_instead_of_drawn() -> None:
    logits = random_logits(1, 50)
    exact = log_softmax(logits[0].astype(np.float64))
    made = SamplerRig(logits).run([0, 0], [order(SamplingParams(), Counters(0), target=t, top=0) for t in (0, 49)])
    assert [sample.token for sample in made] == [0, 49]
    np.testing.assert_allclose([sample.logprob for sample in made], exact[[0, 49]], atol=1e-5, rtol=0)


@every_filter
def test_neighbours_threads_and_instruction_sets_change_no_bit(how: SamplingParams) -> None:
    logits = random_logits(17, 500)
    orders = [order(how, Counters(9, position=row), top=20) for row in range(17)]
    alone = [SamplerRig(logits).run([row], [orders[row]])[0] for row in range(17)]
    rigs = [SamplerRig(logits, isa=isa, threads=threads) for isa in ISAS for threads in (1, 3)]
    for rig in rigs:
        assert [bytes(sample) for sample in rig.run(range(17), orders)] == [bytes(sample) for sample in alone]


@every_kind
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("how", [SamplingParams(temperature=0), *(FILTERS[name] for name in ("none", "top_k", "all"))])
def test_a_token_is_chosen_from_the_edited_logits(kind: str, isa: str, how: SamplingParams) -> None:
    """And what is reported is of the logits as they were, bit for bit what a look at that token tells."""
    logits = random_logits(4, 333)
    rig = SamplerRig(logits, isa=isa)
    edits = [drawn_edits(kind, 333, seed) for seed in range(4)]
    counters = [Counters(5, position=row) for row in range(4)]
    orders = [order(how, counters[row], top=5, edits=edits[row]) for row in range(4)]
    made = rig.run(range(4), orders)
    for row, sample in enumerate(made):
        assert sample.token == choose(edited(logits[row], *edits[row]).astype(np.float64), how, counters[row])
    looked_up = rig.run(range(4), [order(how, counters[0], target=sample.token, top=5) for sample in made])
    for sample, seen in zip(made, looked_up, strict=True):
        assert (sample.token, sample.logprob, list(sample.top_ids)) == (seen.token, seen.logprob, list(seen.top_ids))
        assert list(sample.top_logprobs) == list(seen.top_logprobs)


@pytest.mark.parametrize("isa", ISAS)
def test_an_edit_rounds_twice(isa: str) -> None:
    """Fused, the product would keep the bits below its last one, and another token would win."""
    logits = np.array([[1 + 2.0**-12, 1.0]], np.float32)
    shrink, offset = (np.array(each, np.float32) for each in ([1 + 2.0**-12, 1], [-(1 + 2.0**-11), -1]))
    edits = Edits(np.array([0, 1], np.int32), shrink, shrink, offset)
    assert edited(logits[0], *edits).tolist() == [0, 0]
    made = SamplerRig(logits[:, ::-1].copy(), isa=isa).run(
        [0], [order(SamplingParams(temperature=0), Counters(0), edits=edits._replace(ids=edits.ids[::-1].copy()))]
    )
    assert made[0].token == 0, "not rounded between"


@pytest.mark.parametrize("how", [SamplingParams(temperature=0), FILTERS["none"], FILTERS["all"]])
def test_there_is_no_token_where_none_is_allowed(how: SamplingParams) -> None:
    logits = random_logits(2, 70)
    none = drawn_edits("mask", 70, 0)._replace(mask=np.zeros(3, np.uint32))
    orders = [order(how, Counters(1), top=5, edits=edits) for edits in (none, None)]
    made = SamplerRig(logits).run([0, 1], orders)
    alone = SamplerRig(logits).run([1], orders[1:])
    assert made[0].token == -1
    assert bytes(made[1]) == bytes(alone[0])


@every_filter
def test_rows_with_edits_change_no_bit_of_others(how: SamplingParams) -> None:
    logits = random_logits(18, 500)
    kinds = (None, "numbers", "mask", "both", None, "all forbidden but one")
    edits = [kind and drawn_edits(kind, 500, row) for row, kind in enumerate(kinds * 3)]
    orders = [order(how, Counters(9, position=row), top=20, edits=edits[row] or None) for row in range(18)]
    alone = [SamplerRig(logits).run([row], [orders[row]])[0] for row in range(18)]
    for rig in [SamplerRig(logits, isa=isa, threads=threads) for isa in ISAS for threads in (1, 3)]:
        assert [bytes(sample) for sample in rig.run(range(18), orders)] == [bytes(sample) for sample in alone]
