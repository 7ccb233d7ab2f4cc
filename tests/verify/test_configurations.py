"""Which configurations are tried on each device: every pair of values, the same ones for the same seed."""

import itertools
from dataclasses import fields
from math import prod

import pytest

from parkway.verify.configurations import AXES, Axes, Configuration, Device, covering, sample

SEEDS = [0, 1, 2, 3, 4]
DEVICES: list[Device] = ["cpu", "cuda"]

Pair = tuple[tuple[str, object], ...]


def every_pair(axes: Axes) -> set[Pair]:
    varied = axes.varied
    return {
        ((one, a), (other, b))
        for one, other in itertools.combinations(varied, 2)
        for a, b in itertools.product(varied[one], varied[other])
    }


def covered(axes: Axes, configurations: list[Configuration]) -> set[Pair]:
    pairs = set().union(*(each.pairs for each in configurations))
    return {pair for pair in pairs if all(axis in axes.varied for axis, _ in pair)}


def test_a_configuration_has_a_value_on_every_axis() -> None:
    assert [field.name for field in fields(Configuration)] == [field.name for field in fields(Axes)]
    assert Configuration(15, None, 4, 1, "off", "greedy", "never", "cold").values["chunk"] is None


def test_what_is_varied() -> None:
    common = ["beside", "chunk", "slots", "sampling", "replayed", "prefix"]
    assert [*AXES["cpu"].varied] == [*common[:3], "threads", *common[3:]]
    assert [*AXES["cuda"].varied] == [*common[:3], "graphs", *common[3:]]


@pytest.mark.parametrize(("device", "size"), [("cpu", 3 * 5 * 4 * 2 * 2 * 2 * 3), ("cuda", 4 * 5 * 4 * 2 * 2 * 2 * 3)])
def test_the_product_is_whole(device: Device, size: int) -> None:
    axes = AXES[device]
    assert len(axes.product) == len(set(axes.product)) == size == prod(map(len, axes.varied.values()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_pair_of_values_meets(device: Device, seed: int) -> None:
    axes = AXES[device]
    chosen = covering(axes, seed)
    assert covered(axes, chosen) == every_pair(axes)
    assert covered(axes, chosen[:-1]) < every_pair(axes)
    assert len(chosen) < 30  # the fewest possible are 5 chunk sizes x 4 slot counts


def test_a_missing_pair_is_seen() -> None:
    axes = AXES["cpu"]
    without = [each for each in axes.product if not (each.threads == 2 and each.chunk == 7)]
    assert every_pair(axes) - covered(axes, without) == {(("chunk", 7), ("threads", 2))}


@pytest.mark.parametrize("device", DEVICES)
def test_the_seed_decides(device: Device) -> None:
    axes = AXES[device]
    assert [covering(axes, seed) for seed in SEEDS] == [covering(axes, seed) for seed in SEEDS]
    assert [sample(axes, seed, 9) for seed in SEEDS] == [sample(axes, seed, 9) for seed in SEEDS]
    assert covering(axes, 0) != covering(axes, 1)
    assert sample(axes, 0, 9) != sample(axes, 1, 9)


@pytest.mark.parametrize("device", DEVICES)
def test_a_sample_has_no_configuration_twice(device: Device) -> None:
    assert len(set(sample(AXES[device], 0, 100))) == 100
    assert sample(AXES[device], 0, 0) == []
