"""Copies of pages between the pools: how they are asked for, begun a few a step, and reported when they have landed.

The device works off a queue of copies beside its kernels, and host order is not device order. So a copy waits on the
device for the step behind which it was submitted. Kernels need not wait: whoever submitted a copy pins its pages, so
that no step writes one, or reads one that is written, before the copy has landed. Knows neither what a page holds nor
why it is copied.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from parkway.plan.copies import Copy

MOST_STEPS = 2
"""Whose copies may be under way: enough that the bus has always work, and so few that no queue of the device fills up,
since whoever adds to a full one waits until there is room, and launches nothing meanwhile."""


class Event(Protocol):
    """A point in a queue of the device."""

    @property
    def happened(self) -> bool: ...

    def wait(self) -> None:
        """Sleeps until it has happened."""

    def hold(self, queue: Any) -> None:
        """What is put on a queue of the device from now on waits for it, on the device."""


class Lane(Protocol):
    """A queue of the device for copies alone."""

    queue: Any

    def copy(self, target: Any, source: Any) -> None:
        """Queues the copy of one page, given as its memory, in one piece."""

    def record(self) -> Event:
        """Behind everything that has been queued."""


class Pages(Protocol):
    """Pages of one pool, all of one size."""

    page_bytes: int

    def page(self, number: int) -> Any:
        """The memory of a page."""


class HostPages(Pages, Protocol):
    def prepare(self, numbers: Iterable[int]) -> None:
        """Sees to it that these pages have memory. Raises NoRoom."""


@dataclass(slots=True, eq=False)
class _Open:
    """A submitted copy. The first `begun` of its pages are queued; `end` is behind the last."""

    copy: Copy
    behind: Event | None
    begun: int = 0
    end: Event | None = None


class CopyEngine:
    """Copies between a pool on the device and one on the host, `step_bytes` of them begun in a step.

    Those to the host have a lane of their own, because the bus carries both directions at once.
    """

    def __init__(self, device: Pages, host: HostPages, *, outward: Lane, inward: Lane, step_bytes: int) -> None:
        self._device = device
        self._host = host
        self._outward = outward
        self._inward = inward
        self._step_pages = max(1, step_bytes // device.page_bytes)
        self._behind: Event | None = None
        self._open: list[_Open] = []
        self._under_way: list[tuple[Event, int]] = []
        """Ends of what steps have begun, and how many pages each is behind."""

    def after(self, event: Event) -> None:
        """Copies that are submitted from now on wait for it: the end of the last step that was launched."""
        self._behind = event

    def submit(self, copy: Copy) -> None:
        """Takes a copy in. Raises NoRoom, with nothing changed, if the host has no memory for it."""
        if copy.to_host:
            self._host.prepare(copy.targets)
        self._open.append(_Open(copy, self._behind))

    def advance(self) -> None:
        """Begins what one step may begin, a page at least, in the order of submission, unless the device is behind.
        Call it once a step."""
        self._under_way = [(end, pages) for end, pages in self._under_way if not end.happened]
        room = MOST_STEPS * self._step_pages - sum([pages for _, pages in self._under_way])
        pages_left = min(self._step_pages, room)
        for each in self._open:
            if pages_left <= 0:
                return
            begun = self._begin(each, pages_left)
            pages_left -= begun
            if begun:
                self._under_way.append((each.end or self._lane(each).record(), begun))

    def landed(self) -> list[Copy]:
        """Copies that have been done since this was last asked. Never waits."""
        done = [each for each in self._open if each.end is not None and each.end.happened]
        if done:
            self._open = [each for each in self._open if each not in done]
        return [each.copy for each in done]

    def wait(self) -> None:
        """Begins everything and sleeps until a copy has landed. One must be open."""
        assert self._open, "there is no copy to wait for"
        ends = [self._finish(each) for each in self._open]
        if not any(end.happened for end in ends):
            ends[0].wait()

    def drain(self) -> list[Copy]:
        """Begins everything, waits for it and returns what had not landed."""
        for end in [self._finish(each) for each in self._open]:
            end.wait()
        return self.landed()

    def _finish(self, each: _Open) -> Event:
        """Begins what is left of a copy; returns its end."""
        self._begin(each, len(each.copy.sources))
        assert each.end is not None
        return each.end

    def _begin(self, each: _Open, most: int) -> int:
        """Queues up to `most` further pages of a copy; returns how many."""
        if each.end is not None:
            return 0
        copy, first = each.copy, each.begun
        lane = self._lane(each)
        source = self._host if copy.from_host else self._device
        target = self._host if copy.to_host else self._device
        each.begun = min(first + most, len(copy.sources))
        for at in range(first, each.begun):
            if at == copy.settled and each.behind is not None:
                each.behind.hold(lane.queue)
            lane.copy(target.page(copy.targets[at]), source.page(copy.sources[at]))
        if each.begun == len(copy.sources):
            each.end = lane.record()
        return each.begun - first

    def _lane(self, each: _Open) -> Lane:
        return self._outward if each.copy.to_host else self._inward
