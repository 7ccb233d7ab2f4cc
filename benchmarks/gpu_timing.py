"""How long kernels take on the device. Knows no kernel."""

import statistics
from collections.abc import Callable

import torch

REPLAYS = 7


def microseconds(launch: Callable[[int], object], count: int) -> float:
    """Of one of `count` launches of a captured graph."""
    launch(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for i in range(count):
            launch(i)
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / count)
    return float(statistics.median(times))
