"""What an engine measures of itself: durations by bucket, and the pace that its planner plans with. Knows no clock."""

from bisect import bisect_left
from math import ceil

from parkway.plan.limits import LOOK_AHEAD, Pace
from parkway.report import BUCKETS, Histogram

WEIGHT = 0.2
"""Of a new measurement in a running mean."""
MOST_AHEAD = 64
"""Steps that the planner looks ahead at most: each chat gets a page on the way."""
PREFILL_TOKENS = 32
"""Tokens of a step from which on it tells what a prompt's token costs."""
MANY_PAGES = 8
"""Of a copy from which on it tells what a page costs: a shorter one waits for its step more than it copies."""


class Tally:
    """A histogram while it grows, in seconds."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BUCKETS, seconds)] += 1
        self._seconds += seconds

    @property
    def histogram(self) -> Histogram:
        return Histogram(self._counts.copy(), self._seconds)


class Mean:
    """A running mean; 0 before the first measurement."""

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, value: float) -> None:
        self.value += (value - self.value) * (WEIGHT if self.value else 1.0)


class Pacer:
    """Means over what has been measured, in the planner's words."""

    def __init__(self) -> None:
        self._step, self._token = Mean(), Mean()
        self._park, self._restore, self._page = Mean(), Mean(), Mean()

    @property
    def step_seconds(self) -> float:
        """From one step to the next; 0 before the first."""
        return self._step.value

    def stepped(self, seconds: float, tokens: int) -> None:
        """One step came this long after the one before, with so many tokens."""
        self._step.add(seconds)
        if tokens >= PREFILL_TOKENS:
            self._token.add(seconds / tokens)

    def copied(self, seconds: float, pages: int, *, to_host: bool) -> None:
        """A park or a restore has landed so long after it was decided."""
        (self._park if to_host else self._restore).add(seconds)
        if pages >= MANY_PAGES:
            self._page.add(max(0.0, seconds - self._step.value) / pages)

    def pace(self, now: float) -> Pace:
        steps = ceil(self._park.value / self._step.value) if self._park.value and self._step.value else None
        return Pace(
            now,
            look_ahead=LOOK_AHEAD if steps is None else min(max(1, steps), MOST_AHEAD),
            page_seconds=self._page.value,
            token_seconds=self._token.value,
            switch=self._park.value + self._restore.value,
        )
