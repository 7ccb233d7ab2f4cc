"""The share of a decode step in which the device has nothing to do, from the profiler's record of its kernels."""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def idle_share(step: Callable[[], object], steps: int = 40) -> float:
    """Runs `step` so many times; returns idle time over all, from the first kernel's start to the last one's end.

    Kernels that overlap, as dependent launches do, count once.
    """
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    return idle(
        [
            (event.time_range.start, event.time_range.end)
            for event in recorded.events() or ()
            if event.device_type.name == "CUDA"
        ]
    )


def idle(spans: list[tuple[float, float]]) -> float:
    """The share of the time between the first start and the last end that no span covers."""
    spans = sorted(spans)
    begin, busy, until = spans[0][0], 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return 1 - busy / (until - begin)
