"""Streams, events, graphs and pinned memory. On a machine without a GPU, the CPU in its place: kernels then run in
Triton's interpreter, and everything is done as soon as it has been asked for."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import psutil
import torch
from cuda.bindings import driver

from parkway.backends.cuda.nvrtc import enter_device


class Device:
    """The first GPU that this process may use, or the CPU for tests of the kernels."""

    def __init__(self, kind: str) -> None:
        self.torch = torch.device(kind)
        self.is_gpu = self.torch.type == "cuda"
        self._graph_pool: Any = None

    @classmethod
    def found(cls) -> "Device":
        return cls("cuda" if torch.cuda.is_available() else "cpu")

    @property
    def free_bytes(self) -> int:
        """Of the device's memory, what nobody has."""
        return int(torch.cuda.mem_get_info(self.torch)[0]) if self.is_gpu else int(psutil.virtual_memory().available)

    @property
    def used_bytes(self) -> int:
        """Of the device's memory, what this process has asked for by torch; 0 without a GPU."""
        return int(torch.cuda.memory_reserved(self.torch)) if self.is_gpu else 0

    def pinned(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Host memory int32 that the device reads and writes without the processor, by its kernels too."""
        return torch.zeros(shape, dtype=torch.int32, pin_memory=self.is_gpu)

    def stream(self) -> "torch.cuda.Stream | None":
        return torch.cuda.Stream() if self.is_gpu else None

    def on(self, stream: "torch.cuda.Stream | None") -> AbstractContextManager[Any]:
        """What is asked for inside is queued on the stream."""
        return torch.cuda.stream(stream) if stream is not None else nullcontext()

    def copy(self, target: torch.Tensor, source: torch.Tensor, stream: "torch.cuda.Stream | None") -> None:
        """Queues the copy of one run of memory to another. Raises RuntimeError.

        Asks the driver itself, without Python's lock: torch would set its stream and look at both ends each time, and
        a park has hundreds of pages, which the host queues between two steps.
        """
        if stream is None:
            target.copy_(source)
            return
        enter_device()
        (status,) = driver.cuMemcpyAsync(target.data_ptr(), source.data_ptr(), source.nbytes, stream.cuda_stream)
        if status:
            raise RuntimeError(f"a copy of {source.nbytes} bytes could not be queued: {status.name}")

    def record(self, stream: "torch.cuda.Stream | None") -> "Event":
        """An event behind everything that has been queued on the stream."""
        if stream is None:
            return Event(None)
        event = torch.cuda.Event(blocking=True)
        event.record(stream)
        return Event(event)

    def capture(self, stream: "torch.cuda.Stream | None", run: Callable[[], None]) -> Callable[[], None]:
        """`run`, recorded as a graph: what it launches, at the addresses that it uses now.

        Graphs of one device share the memory of what they compute on the way, so only one may run at a time.
        """
        if stream is None:
            return run
        self._graph_pool = self._graph_pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, stream, self._graph_pool):
            run()
        return graph.replay


@contextmanager
def capturing(graph: "torch.cuda.CUDAGraph", stream: "torch.cuda.Stream", pool: Any = None) -> Iterator[None]:
    """Inside, what is launched is recorded. Neither other threads nor the garbage collector can spoil it: the former
    may be pinning memory, which a capture forbids all threads unless it is told to mind its own; the latter may find
    graphs of a model that has gone, and none may be destroyed meanwhile."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            yield
    finally:
        if collects:
            gc.enable()


ONE_BY_ONE, BEHIND, AHEAD = range(3)
"""When a kernel is launched: when the one in front of it has ended; when all programs of that one are past their own
wait (programmatic dependent launch); or when they have begun, so that many kernels may be there and load weights."""


class Launches(NamedTuple):
    """How a model's kernels follow each other: in steps of so many rows at most ONE_BY_ONE, then AHEAD, then BEHIND."""

    one_by_one: int
    ahead: int

    def of(self, device: Device, rows: int) -> int:
        if not device.is_gpu or rows <= self.one_by_one:
            return ONE_BY_ONE
        return AHEAD if rows <= self.ahead else BEHIND


DENSE, MIXTURE, QUANTISED, HYBRID = Launches(16, 16), Launches(0, 0), Launches(1, 4), Launches(0, 0)
"""Of dense matrices few rows leave room on every multiprocessor, and programs that come early take it from those that
work. Quantised products, those of experts and delta nets are short. benchmarks.gpu_variants times them."""


class Event:
    """Something that will have happened on the device."""

    def __init__(self, event: "torch.cuda.Event | None") -> None:
        self._event = event

    @property
    def happened(self) -> bool:
        return self._event is None or self._event.query()

    def wait(self) -> None:
        """Sleeps until it has happened."""
        if self._event is not None:
            self._event.synchronize()

    def hold(self, stream: "torch.cuda.Stream | None") -> None:
        """What is queued on the stream from now on waits for it, on the device."""
        if self._event is not None and stream is not None:
            stream.wait_event(self._event)
