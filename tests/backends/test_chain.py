"""Samplers in any order: the CPU against the specification, and the specification against each sampler's own rule."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parkway.backends.reference_sampler import Counters, Step, edited, log_softmax, uniform, walked
from parkway.request import SamplingParams
from parkway.runner.chain import KINDS, chain_of
from tests.backends.drawn_chains import as_chain, logits_of, no_edits
from tests.backends.drawn_edits import drawn_edits
from tests.backends.rig import ISAS
from tests.backends.test_sampler import SamplerRig, order, random_logits

Floats = npt.NDArray[np.float64]
ANYHOW = SamplingParams()


KINDS_OF_LOGITS = 6
shares = st.floats(0.001, 1)
steps_drawn = st.lists(
    st.one_of(
        st.tuples(st.just("temperature"), st.floats(0.05, 4), st.just(0.0), st.just(1.0)),
        st.tuples(st.just("temperature"), st.floats(0.0, 2), st.floats(0.1, 2), st.floats(0.2, 3)),
        st.tuples(st.just("top_k"), st.integers(1, 400).map(float), st.just(0.0), st.just(0.0)),
        st.tuples(st.sampled_from(["top_p", "min_p", "typ_p"]), shares, st.just(0.0), st.just(0.0)),
        st.tuples(st.just("top_n_sigma"), st.floats(0.1, 4), st.just(0.0), st.just(0.0)),
        st.tuples(st.just("xtc"), shares, st.floats(0.001, 0.5), st.just(0.0)),
        st.tuples(st.sampled_from(["mirostat", "mirostat_2"]), st.floats(0.5, 15), st.just(0.0), st.just(0.0)),
    ),
    max_size=6,
)


@pytest.fixture(scope="module")
def rig() -> SamplerRig:
    return SamplerRig(np.stack([logits_of(kind) for kind in range(KINDS_OF_LOGITS)]))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(steps=steps_drawn, kind=st.integers(0, KINDS_OF_LOGITS - 1), first=st.integers(0, 2**31 - 100))
def test_tokens_and_surprises_are_those_of_the_specification(
    rig: SamplerRig, steps: list[Step], kind: int, first: int
) -> None:
    edits = no_edits(as_chain(steps))
    counters = [Counters(7, 1, 2, first + i) for i in range(8)]
    made = rig.run([kind] * 8, [order(ANYHOW, each, edits=edits) for each in counters])
    exact = [walked(logits_of(kind).astype(np.float64), steps, each) for each in counters]
    assert [sample.token for sample in made] == [token for token, _ in exact]
    np.testing.assert_allclose([sample.surprise for sample in made], [bits for _, bits in exact], atol=1e-9)


def test_a_large_vocabulary_is_sorted_as_far_as_needed() -> None:
    logits = random_logits(2, 30_001) * np.array([[0.05], [1.5]], np.float32)
    rig = SamplerRig(logits)
    chains: list[list[Step]] = [
        [("typ_p", 0.4, 0, 0)],
        [("top_p", 0.999, 0, 0), ("xtc", 1, 0.001, 0)],
        [("min_p", 0.5, 0, 0), ("temperature", 1, 0.5, 1), ("top_k", 5000, 0, 0)],
        [("mirostat", 6, 0, 0)],
        [],
    ]
    for steps in chains:
        edits = no_edits(as_chain(steps))
        for row in range(2):
            counters = [Counters(3, position=p) for p in range(6)]
            made = rig.run([row] * 6, [order(ANYHOW, each, edits=edits) for each in counters])
            exact = logits[row].astype(np.float64)
            assert [sample.token for sample in made] == [walked(exact, steps, each)[0] for each in counters]


def kept(rig: SamplerRig, steps: list[Step], draws: int = 1500) -> set[int]:
    """The tokens that a chain leaves, as its draws show: at a temperature at which they are about as probable."""
    edits = no_edits(as_chain([*steps, ("temperature", 50, 0, 0)]))
    orders = [order(ANYHOW, Counters(1, position=p), edits=edits) for p in range(draws)]
    made = [rig.run([0] * 100, orders[i : i + 100]) for i in range(0, draws, 100)]
    return {sample.token for part in made for sample in part}


FEW = np.array([[2.0, 3.5, -1.0, 3.0, 0.5, 3.25, 1.0, -2.0]], np.float32)


def probabilities() -> Floats:
    return np.exp(log_softmax(FEW[0].astype(np.float64)))


def typical(p: float) -> set[int]:
    surprise, taken, mass = -np.log(probabilities()), set(), 0.0
    entropy = (probabilities() * surprise).sum()
    for token in np.argsort(np.abs(surprise - entropy), kind="stable").tolist():
        taken.add(token)
        mass += probabilities()[token]
        if mass > p:
            break
    return taken


def above_sigma(n: float) -> set[int]:
    return {i for i in range(8) if FEW[0, i] >= FEW[0].max() - n * FEW[0].std()}


def without_top_choices(threshold: float) -> set[int]:
    above = [i for i in range(8) if probabilities()[i] >= threshold]
    return set(range(8)) - set(sorted(above, key=lambda i: -probabilities()[i])[:-1])


def surprising(mu: float) -> set[int]:
    return {i for i in range(8) if -np.log2(probabilities()[i]) <= mu} or {1}


RULES: dict[str, tuple[Step, Callable[[], set[int]]]] = {
    "typical": (("typ_p", 0.5, 0, 0), lambda: typical(0.5)),
    "typical of few": (("typ_p", 0.05, 0, 0), lambda: typical(0.05)),
    "typical of most": (("typ_p", 0.97, 0, 0), lambda: typical(0.97)),
    "sigma": (("top_n_sigma", 1, 0, 0), lambda: above_sigma(1)),
    "half a sigma": (("top_n_sigma", 0.5, 0, 0), lambda: above_sigma(0.5)),
    "xtc": (("xtc", 1, 0.1, 0), lambda: without_top_choices(0.1)),
    "xtc of one": (("xtc", 1, 0.5, 0), lambda: set(range(8))),
    "mirostat 2": (("mirostat_2", 3, 0, 0), lambda: surprising(3)),
    "mirostat 2 of one": (("mirostat_2", 0.01, 0, 0), lambda: {1}),
}


@pytest.mark.parametrize(("step", "rule"), RULES.values(), ids=RULES.keys())
def test_each_leaves_what_its_rule_says(step: Step, rule: Callable[[], set[int]]) -> None:
    assert kept(SamplerRig(FEW), [step]) == rule()


def test_mirostat_1_leaves_as_many_as_its_law_says() -> None:
    """Zipf's law itself, with exponent 2: then k is as the paper has it."""
    logits = (-2 * np.log(np.arange(1, 101)))[None].astype(np.float32)
    for mu in (2.0, 5.0):
        k = (2.0**mu / (1 - 1 / 100)) ** 0.5
        assert kept(SamplerRig(logits), [("mirostat", mu, 0, 0)]) == set(range(int(k)))


def test_xtc_acts_as_often_as_it_is_told_by_a_draw_of_its_own() -> None:
    rig, greedy = SamplerRig(FEW), ("temperature", 0.0, 0.0, 0.0)
    edits = no_edits(as_chain([("xtc", 0.3, 0.1, 0), greedy]))
    counters = [Counters(4, position=p) for p in range(100)]
    made = rig.run([0] * 100, [order(ANYHOW, each, edits=edits) for each in counters])
    last = min(without_top_choices(0.1), key=lambda i: -probabilities()[i])
    assert [sample.token == last for sample in made] == [uniform(each, 1) < 0.3 for each in counters]
    assert 15 < sum(sample.token == last for sample in made) < 45


def test_a_dynamic_temperature_is_between_its_ends() -> None:
    """At 1 where all are as probable, at 0 where one has it all; between them by the entropy."""
    flat, sure = np.zeros(10), np.array([0.0, *[-500.0] * 9])
    drawn = [walked(flat, [("temperature", 0.5, 0.5, 1)], Counters(1, position=p)) for p in range(50)]
    assert {round(bits, 6) for _, bits in drawn} == {round(np.log2(10), 6)}
    x = FEW[0].astype(np.float64)
    entropy = -(probabilities() * np.log(probabilities())).sum() / np.log(8)
    t = 0.2 + 1.6 * entropy**1.5
    for p in range(20):
        made = walked(x, [("temperature", 1.0, 0.8, 1.5)], Counters(1, position=p))
        assert made == pytest.approx(walked(x, [("temperature", t, 0, 1)], Counters(1, position=p)))
    assert walked(sure, [("temperature", 0.5, 0.5, 1)], Counters(1)) == (0, 0.0)


ORDERS: list[list[Step]] = [
    [("typ_p", 0.7, 0, 0), ("temperature", 0.8, 0, 1)],
    [("top_k", 40, 0, 0), ("top_p", 0.9, 0, 0), ("xtc", 0.6, 0.05, 0), ("temperature", 1.2, 0.3, 1)],
    [("temperature", 0.8, 0, 1), ("mirostat_2", 4, 0, 0)],
    [("temperature", 0.8, 0, 1), ("mirostat", 4, 0, 0)],
    [("top_n_sigma", 1.5, 0, 0), ("min_p", 0.1, 0, 0)],
]


@pytest.mark.parametrize("steps", ORDERS)
def test_neighbours_threads_and_instruction_sets_change_no_bit(steps: list[Step]) -> None:
    """Every third row without a chain, every second with other edits."""
    logits = random_logits(18, 500)
    numbers = [drawn_edits("both", 500, row) if row % 2 else no_edits(None) for row in range(18)]
    edits = [each._replace(chain=as_chain(steps) if row % 3 else None) for row, each in enumerate(numbers)]
    orders = [order(ANYHOW, Counters(9, position=row), top=20, edits=edits[row]) for row in range(18)]
    alone = [SamplerRig(logits).run([row], [orders[row]])[0] for row in range(18)]
    for rig in [SamplerRig(logits, isa=isa, threads=threads) for isa in ISAS for threads in (1, 3)]:
        assert [bytes(sample) for sample in rig.run(range(18), orders)] == [bytes(sample) for sample in alone]
    for row, sample in enumerate(alone):
        if edits[row].chain is not None:
            exact = edited(logits[row], *edits[row][:5]).astype(np.float64)
            assert sample.token == walked(exact, steps, Counters(9, position=row))[0]


def test_there_is_no_token_where_none_is_allowed() -> None:
    none = drawn_edits("mask", 70, 0)._replace(mask=np.zeros(3, np.uint32), chain=as_chain(ORDERS[0]))
    (made,) = SamplerRig(random_logits(1, 70)).run([0], [order(ANYHOW, Counters(1), edits=none)])
    assert made.token == -1


def test_of_equal_candidates_the_lower_ids_are_kept_and_typical_keeps_all_that_are_as_near() -> None:
    logits = np.zeros((1, 16), np.float32)
    logits[0, [5, 9]] = 1
    rig = SamplerRig(logits)
    assert kept(rig, [("top_k", 4, 0, 0)]) == {5, 9, 0, 1}
    assert kept(rig, [("typ_p", 0.01, 0, 0)]) in ({5, 9}, set(range(16)) - {5, 9})


USUAL = ("temperature", "top_k", "top_p", "min_p")
LLAMA = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
FILTERED = SamplingParams(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1)


@pytest.mark.parametrize(
    ("changes", "chain"),
    [
        ({}, None),
        ({"samplers": USUAL}, None),
        ({"samplers": ("top_k", "temperature")}, ["top_k", "temperature"]),
        ({"samplers": ("top_k", "temperature"), "top_p": 1.0, "min_p": 0.0}, None),
        ({"samplers": ("temperature",), "top_k": 0, "top_p": 1.0, "min_p": 0.0}, None),
        ({"samplers": LLAMA}, ["top_k", "top_p", "min_p", "temperature"]),
        ({"samplers": LLAMA, "top_p": 1.0, "min_p": 0.0}, None),
        ({"samplers": LLAMA, "temperature": 0.0}, None),
        ({"samplers": LLAMA, "temperature": 1.0}, None),
        ({"samplers": ("temperature", "min_p", "top_k", "top_p")}, ["temperature", "min_p", "top_k", "top_p"]),
        ({"samplers": ("top_k",)}, ["top_k"]),
        ({"samplers": ("penalties",)}, []),
        ({"typical_p": 0.5}, ["top_k", "typ_p", "top_p", "min_p", "temperature"]),
        ({"typical_p": 0.5, "temperature": 0.0}, ["top_k", "typ_p", "top_p", "min_p", "temperature"]),
        ({"top_n_sigma": 1.0, "temperature": 0.0}, None),
        ({"top_n_sigma": 0.0}, None),
        ({"top_n_sigma": 1.0, "top_k": 0}, ["top_n_sigma", "top_p", "min_p", "temperature"]),
        ({"xtc_probability": 0.5}, ["top_k", "top_p", "min_p", "xtc", "temperature"]),
        ({"xtc_probability": 0.5, "xtc_threshold": 0.6}, None),
        ({"dynatemp_range": 0.5}, ["top_k", "top_p", "min_p", "temperature"]),
        ({"dynatemp_range": 0.5, "temperature": 0.0}, ["top_k", "top_p", "min_p", "temperature"]),
        ({"mirostat": 1, "typical_p": 0.5}, ["temperature", "mirostat"]),
        ({"mirostat": 2, "samplers": ("top_k",)}, ["temperature", "mirostat_2"]),
        ({"dry_multiplier": 1.0}, None),
    ],
)
def test_which_requests_have_a_chain(changes: dict[str, Any], chain: list[str] | None) -> None:
    made = chain_of(SamplingParams(**{name: getattr(FILTERED, name) for name in USUAL} | changes))
    assert (None if made is None else [KINDS[kind] for kind in made["kind"]]) == chain


def test_the_usual_order_as_a_chain_chooses_the_usual_tokens() -> None:
    """Both walk the candidates by falling weight, so that a request may take the shorter way without a change."""
    logits = random_logits(1, 500)
    rig = SamplerRig(logits)
    counters = [Counters(6, position=p) for p in range(200)]
    steps: list[Step] = [("temperature", 0.7, 0, 1), ("top_k", 5, 0, 0), ("top_p", 0.9, 0, 0), ("min_p", 0.1, 0, 0)]
    edits = no_edits(as_chain(steps))
    made = [
        rig.run([0] * 200, [order(FILTERED, each, edits=with_it) for each in counters]) for with_it in (edits, None)
    ]
    assert [sample.token for sample in made[0]] == [sample.token for sample in made[1]]
