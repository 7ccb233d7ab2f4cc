"""Short windows of measurement and which of them were quiet. Knows nothing of what runs in them.

A window is disturbed where processes that take no part in it, or other guests of the host, used more than a small
share of the cores. Medians are taken over the quiet windows.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import psutil

from parkway.machine import cores

QUIET_SHARE = 0.05
"""Clock ticks of 10 ms give an undisturbed window of half a second a share of up to 0.03."""
_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")


class Window(NamedTuple):
    """A value and the share of the cores' time, 0 to 1, that others took while it was measured."""

    value: float
    others: float

    @property
    def quiet(self) -> bool:
        return self.others <= QUIET_SHARE


@dataclass(frozen=True, slots=True)
class Median:
    """The median of the quiet windows; of all windows where none was quiet."""

    value: float
    quiet: int
    windows: int


def median(windows: Iterable[Window]) -> Median:
    """Raises ValueError if there is no window."""
    windows = list(windows)
    quiet = [window.value for window in windows if window.quiet]
    values = quiet or [window.value for window in windows]
    if not values:
        raise ValueError("nothing was measured")
    return Median(statistics.median(values), len(quiet), len(windows))


def share_of_others(busy_seconds: float, own_seconds: float, core_seconds: float) -> float:
    """The part of the cores' time that was busy and not ours; clocks that disagree by a tick never make it less than
    nothing or more than all."""
    return min(max(0.0, busy_seconds - own_seconds) / core_seconds, 1.0)


class Watch:
    """Watches the machine from its making on; `pids` are the processes that take part in what is measured."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._started = perf_counter()
        self._busy, self._own = _busy_seconds(), self._own_seconds()

    def join(self, pids: Iterable[int]) -> None:
        """Processes that take part too and that have started since."""
        self._processes += [psutil.Process(pid) for pid in pids]

    def others(self) -> float:
        """The share of the cores' time that others have taken until now."""
        busy, own = _busy_seconds() - self._busy, self._own_seconds() - self._own
        return share_of_others(busy, own, len(cores()) * (perf_counter() - self._started))

    def _own_seconds(self) -> float:
        times = [process.cpu_times() for process in self._processes]
        return float(sum(each.user + each.system for each in times))


def _busy_seconds() -> float:
    usable = cores()
    return sum(busy(times) for core, times in enumerate(psutil.cpu_times(percpu=True)) if core in usable)


def busy(times: Any) -> float:
    """Seconds in which a core was not idle, those stolen by the host's other guests included."""
    return float(sum(getattr(times, name, 0.0) for name in _BUSY))
