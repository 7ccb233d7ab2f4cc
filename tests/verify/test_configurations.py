"""Which configurations are tried on each device: every pair of values, the same ones for the same seed."""

import itertools
from dataclasses import fields
from functools import cache

import pytest

from parkway.verify.configurations import AXES, SELDOM, Axes, Configuration, Device, covering, sample

SEEDS = [0, 1, 2, 3, 4]
DEVICES: list[Device] = ["cpu", "cuda"]

PARKED = {"kept", "copying"}

chosen = cache(covering)
"""What takes a good part of a second, once for all tests."""

Pair = tuple[tuple[str, object], ...]


def every_pair(axes: Axes) -> set[Pair]:
    """Of values that can meet: what becomes of parked chats means nothing where nobody is parked."""
    varied = {axis: (*values, "-") if axis in PARKED else values for axis, values in axes.varied.items()}
    pairs = {
        ((one, a), (other, b))
        for one, other in itertools.combinations(varied, 2)
        for a, b in itertools.product(varied[one], varied[other])
    }
    return {pair for pair in pairs if len({value == "-" for axis, value in map(as_parked, pair) if axis in PARKED}) < 2}


def as_parked(value: tuple[str, object]) -> tuple[str, object]:
    return ("kept", value[1] or "-") if value[0] == "park_every" else value


def covered(axes: Axes, configurations: list[Configuration]) -> set[Pair]:
    pairs = set().union(*(each.pairs for each in configurations))
    return {pair for pair in pairs if all(axis in axes.varied for axis, _ in pair)}


def test_a_configuration_has_a_value_on_every_axis() -> None:
    assert [field.name for field in fields(Configuration)] == [field.name for field in fields(Axes)]
    assert Configuration(15, None, 4, 1, "off", "greedy", 0, "-", "-", "cold").values["chunk"] is None


def test_what_is_varied() -> None:
    common = ["beside", "chunk", "slots", "sampling", "park_every", "kept", "copying", "prefix"]
    assert [*AXES["cpu"].varied] == [*common[:3], "threads", *common[3:]]
    assert [*AXES["cuda"].varied] == [*common[:3], "graphs", *common[3:]]


@pytest.mark.parametrize(("device", "rest"), [("cpu", 3 * 4 * 2 * 2 * 3), ("cuda", 4 * 4 * 2 * 2 * 3)])
def test_the_product_is_whole_but_for_long_answers_by_ones(device: Device, rest: int) -> None:
    product = AXES[device].product
    by_ones = [each for each in product if each.chunk == 1 and each.park_every == SELDOM]
    assert len(product) - len(by_ones) == rest * (5 * (1 + 2 * 3 * 2) - 3 * 2)
    assert len(set(product)) == len(product)
    assert all(each.squeezed for each in by_ones)
    assert {each.kept for each in by_ones} == {"copied"}


@pytest.mark.parametrize("device", DEVICES)
def test_without_parks_nothing_is_kept_or_copied(device: Device) -> None:
    for each in AXES[device].product:
        assert {each.park_every == 0, each.kept == "-", each.copying == "-"} in ({True}, {False})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", SEEDS)
def test_somebody_is_parked_in_its_prompt(device: Device, seed: int) -> None:
    assert any(each.squeezed for each in chosen(AXES[device], seed))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_pair_of_values_meets(device: Device, seed: int) -> None:
    axes, all_chosen = AXES[device], chosen(AXES[device], seed)
    assert covered(axes, all_chosen) == every_pair(axes)
    assert covered(axes, all_chosen[:-1]) < every_pair(axes)
    assert len(all_chosen) < 30  # the fewest possible are 5 chunk sizes x 4 slot counts


def test_a_missing_pair_is_seen() -> None:
    axes = AXES["cpu"]
    without = [each for each in axes.product if not (each.threads == 2 and each.chunk == 7)]
    assert every_pair(axes) - covered(axes, without) == {(("chunk", 7), ("threads", 2))}


@pytest.mark.parametrize("device", DEVICES)
def test_the_seed_decides(device: Device) -> None:
    axes = AXES[device]
    assert [covering(axes, seed) for seed in SEEDS[:2]] == [chosen(axes, seed) for seed in SEEDS[:2]]
    assert [sample(axes, seed, 9) for seed in SEEDS] == [sample(axes, seed, 9) for seed in SEEDS]
    assert chosen(axes, 0) != chosen(axes, 1)
    assert sample(axes, 0, 9) != sample(axes, 1, 9)


@pytest.mark.parametrize("device", DEVICES)
def test_a_sample_has_no_configuration_twice(device: Device) -> None:
    assert len(set(sample(AXES[device], 0, 100))) == 100
    assert sample(AXES[device], 0, 0) == []
