"""Windows: which are quiet, and what their median is."""

import os
from typing import NamedTuple

import pytest

from parkway.bench.windows import QUIET_SHARE, Median, Watch, Window, busy, median, share_of_others


def test_disturbed_windows_do_not_count_beside_quiet_ones() -> None:
    windows = [Window(100.0, 0.5), Window(7.0, 0.0), Window(5.0, QUIET_SHARE), Window(6.0, 0.01), Window(1.0, 0.051)]
    assert median(windows) == Median(6.0, quiet=3, windows=5)


def test_without_a_quiet_window_all_count_and_it_shows() -> None:
    assert median([Window(3.0, 0.2), Window(9.0, 0.9), Window(4.0, 0.4)]) == Median(4.0, quiet=0, windows=3)


def test_nothing_measured_has_no_median() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        median([])


@pytest.mark.parametrize(
    ("busy_seconds", "own_seconds", "share"),
    [(2.0, 2.0, 0.0), (2.0, 1.5, 0.25), (0.5, 0.0, 0.25), (1.99, 2.0, 0.0), (2.01, 0.0, 1.0)],
)
def test_share_of_others(busy_seconds: float, own_seconds: float, share: float) -> None:
    assert share_of_others(busy_seconds, own_seconds, core_seconds=2.0) == share


class Times(NamedTuple):
    user: float
    nice: float
    system: float
    idle: float
    iowait: float
    steal: float
    guest: float


def test_busy_is_all_but_idle_and_stolen_time_counts() -> None:
    times = Times(user=8.0, nice=1.0, system=2.0, idle=100.0, iowait=50.0, steal=4.0, guest=3.0)
    assert busy(times) == 15.0  # a guest's time is in the user's already


def test_a_process_that_joins_is_no_other() -> None:
    """Two watches over the same time: one knows this process from the start, one hears of it at the end."""
    told, joined = Watch([os.getpid()]), Watch([])
    joined.join([os.getpid()])
    assert 0 <= joined.others() <= 1
    assert 0 <= told.others() <= 1
