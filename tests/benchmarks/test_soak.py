"""What the soak takes for left behind."""

import pytest

from benchmarks.load import Counts
from benchmarks.soak import held, left_behind
from parkway.api.metrics import Metrics
from parkway.report import Facts, Snapshot, View

FACTS = Facts(model="toy", n_ctx=64, slots=1, vocab_size=8, fingerprint="", weight_bytes=0, pool_bytes=0)
SPARE = 1 << 31
"""Bytes of host memory that an engine on a GPU begins with, and keeps."""


def of(snapshot: Snapshot) -> dict[str, float]:
    return held(Counts(Metrics("toy", lambda: snapshot, View, lambda: FACTS).page().decode()))


@pytest.mark.parametrize("spare", [0, SPARE])
def test_nothing_is_left_where_all_is_as_it_was(spare: int) -> None:
    before = of(Snapshot(pages_total=4, host_bytes=spare))
    after = of(Snapshot(pages_total=4, parks=9, resumes=9, host_bytes=spare))
    assert set(left_behind(before, after).values()) == {0}


@pytest.mark.parametrize(
    ("after", "left"),
    [
        (Snapshot(pages_used=1, pages_total=4), 0.25),
        (Snapshot(parked=1), 1),
        (Snapshot(parked_bytes=4096), 4096),
        (Snapshot(host_bytes=4096), 4096),
    ],
)
def test_what_is_left(after: Snapshot, left: float) -> None:
    assert sum(left_behind(of(Snapshot(pages_total=4)), of(after)).values()) == left


def test_slabs_beyond_those_of_the_start_are_left() -> None:
    left = left_behind(of(Snapshot(host_bytes=SPARE)), of(Snapshot(host_bytes=SPARE + 4096)))
    assert sum(left.values()) == 4096
