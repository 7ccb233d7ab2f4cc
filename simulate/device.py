"""A device in simulated time: steps one after another, copies beside them. Knows what things cost, and no planner."""

from collections import deque
from dataclasses import dataclass

from parkway.plan.copies import Copy
from parkway.plan.step import Chunk
from simulate.costs import Costs


@dataclass(slots=True, eq=False)
class _Open:
    """A copy, the time of the step that it waits for, how many pages are begun, and when the last has landed."""

    copy: Copy
    behind: float
    begun: int = 0
    end: float = float("inf")


class Device:
    """Takes launches and copies in the order in which they come, as a runner and a copy engine do."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._steps: deque[tuple[float, tuple[Chunk, ...]]] = deque()
        self._last_end = 0.0
        self._lanes = [0.0, 0.0]
        self._open: list[_Open] = []

    def submit(self, copies: tuple[Copy, ...], now: float) -> None:
        """They wait for the steps that have been launched."""
        for copy in copies:
            self._open.append(_Open(copy, max(now, self._last_end)))

    def launch(self, chunks: tuple[Chunk, ...], now: float) -> None:
        rows = sum([len(chunk.tokens) == 1 for chunk in chunks])
        tokens = sum([len(chunk.tokens) for chunk in chunks]) - rows
        self._last_end = max(now, self._last_end) + self._costs.step_seconds(rows, tokens)
        self._steps.append((self._last_end, chunks))
        pages = self._costs.step_pages
        for each in self._open:
            pages -= self._begin(each, pages)

    def land(self) -> tuple[float, tuple[Chunk, ...]]:
        """When the oldest step ends, and what it computed."""
        return self._steps.popleft()

    def landed(self, now: float) -> list[Copy]:
        """Copies that have been done since this was last asked."""
        done = [each.copy for each in self._open if each.end <= now]
        self._open = [each for each in self._open if each.end > now]
        return done

    def next_landing(self) -> float:
        """Begins everything that is open, and tells when the first of it lands. Something must be open."""
        for each in self._open:
            self._begin(each, len(each.copy.sources))
        return min([each.end for each in self._open])

    def _begin(self, each: _Open, most: int) -> int:
        """Begins up to `most` further pages of a copy; returns how many."""
        pages = min(most, len(each.copy.sources) - each.begun)
        if pages:
            lane = each.copy.from_host if self._costs.lanes == 2 else 0
            self._lanes[lane] = max(self._lanes[lane], each.behind) + pages * self._costs.page
            each.begun += pages
            if each.begun == len(each.copy.sources):
                each.end = self._lanes[lane]
        return pages
