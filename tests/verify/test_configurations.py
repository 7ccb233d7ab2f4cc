"""Which configurations are tried: every pair of values, the same ones for the same seed."""

import itertools

import pytest

from parkway.verify.configurations import AXES, Configuration, covering, product, sample

SEEDS = [0, 1, 2, 3, 4]


def every_pair() -> set[tuple[tuple[str, object], tuple[str, object]]]:
    return {
        ((one, a), (other, b))
        for one, other in itertools.combinations(AXES, 2)
        for a, b in itertools.product(AXES[one], AXES[other])
    }


def covered(configurations: list[Configuration]) -> set[tuple[tuple[str, object], ...]]:
    return set().union(*(each.pairs for each in configurations))


def test_the_product_is_whole() -> None:
    assert len(product()) == len(set(product())) == 3 * 5 * 4 * 2 * 2 * 2


@pytest.mark.parametrize("seed", SEEDS)
def test_every_pair_of_values_meets(seed: int) -> None:
    chosen = covering(seed)
    assert covered(chosen) == every_pair()
    assert covered(chosen[:-1]) < every_pair()
    assert len(chosen) < 30  # the fewest possible are 5 chunk sizes x 4 slot counts


def test_a_missing_pair_is_seen() -> None:
    without = [each for each in product() if not (each.threads == 2 and each.chunk_tokens == 7)]
    assert every_pair() - covered(without) == {(("chunk", 7), ("threads", 2))}


def test_the_seed_decides() -> None:
    assert [covering(seed) for seed in SEEDS] == [covering(seed) for seed in SEEDS]
    assert [sample(seed, 9) for seed in SEEDS] == [sample(seed, 9) for seed in SEEDS]
    assert covering(0) != covering(1)
    assert sample(0, 9) != sample(1, 9)


def test_a_sample_has_no_configuration_twice() -> None:
    assert len(set(sample(0, 100))) == 100
    assert sample(0, 0) == []
