"""Copies on an NVIDIA GPU: streams of their own, and pinned host memory where the system grants it."""

import mmap
import weakref
from functools import partial
from time import perf_counter, sleep

import numpy as np
import psutil
import torch

from parkway.backends.cuda.device import Device, Event
from parkway.memory.copy_engine import CopyEngine
from parkway.memory.cuda_page_store import CudaPageStore
from parkway.memory.host_pool import HostPool

STEP_BYTES = 256 * 2**20
"""Begun in one step: what the bus carries in about 5 ms, which is a decode step of a model whose pages are large."""

SPARE_BYTES = 2 * 2**30
"""Pinned at the start, in a second, and kept: some chats of a thousand tokens. Pinning it when they park would stop
everybody."""


class CudaLane:
    """A stream for copies. One page is one call of the copy engine."""

    def __init__(self, device: Device) -> None:
        self.queue = device.stream()
        self._device = device

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self._device.copy(target, source, self.queue)

    def record(self) -> Event:
        return self._device.record(self.queue)


class PinnedSlab:
    """Host memory for pages of a shape and type, pinned if the system lets it be. Raises MemoryError.

    `beside`: steps are running, so half of the time is left to those who launch them.
    """

    def __init__(self, page: torch.Tensor, size_bytes: int, *, beside: bool = False) -> None:
        self.size_bytes = size_bytes
        pages = size_bytes // page.nbytes
        memory = _host_memory(size_bytes)[: pages * page.nbytes]
        self._pages = memory.view(page.dtype).view(pages, *page.shape)
        for each in memory.view(pages, -1):
            began = perf_counter()
            _pin(each, self)
            if beside:
                sleep(perf_counter() - began)

    @property
    def pinned(self) -> bool:
        return self._pages[0].is_pinned()

    def page(self, index: int) -> torch.Tensor:
        return self._pages[index]


def host_pool(store: CudaPageStore, most_bytes: int) -> HostPool:
    """Host pages like the store's, as many as fit into so many bytes."""
    slab = partial(PinnedSlab, store.page(0))
    return HostPool(most_bytes, store.page_bytes, slab, allocate_beside=partial(slab, beside=True))


def copy_engine(store: CudaPageStore, host: HostPool, device: Device) -> CopyEngine:
    return CopyEngine(store, host, outward=CudaLane(device), inward=CudaLane(device), step_bytes=STEP_BYTES)


def _host_memory(size_bytes: int) -> torch.Tensor:
    """uint8 [size_bytes] in large pages of the system's, which are there: pinning is short. Raises MemoryError.

    One thread touches them, without Python's lock: torch's threads would take the cores from those who run steps.
    """
    if size_bytes > psutil.virtual_memory().available:  # the system would promise it all the same
        raise MemoryError
    try:
        memory = mmap.mmap(-1, size_bytes)
    except OSError as error:
        raise MemoryError(str(error)) from error
    memory.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE] = 0
    return torch.frombuffer(memory, dtype=torch.uint8)


def _pin(page: torch.Tensor, slab: PinnedSlab) -> None:
    """Pins a page as long as its slab lives, if there is a device and no limit on locked memory: what is not pinned is
    slower, not wrong. A page at a time, because nobody can launch anything meanwhile: the driver has one lock."""
    if torch.cuda.is_available():
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        if int(runtime.cudaHostRegister(page.data_ptr(), page.nbytes, 0)) == 0:
            weakref.finalize(slab, runtime.cudaHostUnregister, page.data_ptr())
