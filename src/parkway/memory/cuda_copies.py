"""Copies on an NVIDIA GPU: streams of their own, and pinned host memory where the system grants it."""

from functools import partial

import torch

from parkway.backends.cuda.device import Device, Event
from parkway.memory.copy_engine import CopyEngine
from parkway.memory.cuda_page_store import CudaPageStore
from parkway.memory.host_pool import HostPool

STEP_BYTES = 256 * 2**20
"""Begun in one step: what the bus carries in about 5 ms, which is a decode step of a model whose pages are large."""


class CudaLane:
    """A stream for copies. One page is one call of the copy engine."""

    def __init__(self, device: Device) -> None:
        self.queue = device.stream()
        self._device = device

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        with self._device.on(self.queue):
            target.copy_(source, non_blocking=True)

    def record(self) -> Event:
        return self._device.record(self.queue)


class PinnedSlab:
    """Host memory for pages of a shape and type. Raises MemoryError."""

    def __init__(self, page: torch.Tensor, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._memory = _pinned(size_bytes)
        pages = size_bytes // page.nbytes
        self._pages = self._memory[: pages * page.nbytes].view(page.dtype).view(pages, *page.shape)

    @property
    def pinned(self) -> bool:
        return self._memory.is_pinned()

    def page(self, index: int) -> torch.Tensor:
        return self._pages[index]


def host_pool(store: CudaPageStore, most_bytes: int) -> HostPool:
    """Host pages like the store's, as many as fit into so many bytes."""
    return HostPool(most_bytes, store.page_bytes, partial(PinnedSlab, store.page(0)))


def copy_engine(store: CudaPageStore, host: HostPool, device: Device) -> CopyEngine:
    return CopyEngine(store, host, outward=CudaLane(device), inward=CudaLane(device), step_bytes=STEP_BYTES)


def _pinned(size_bytes: int) -> torch.Tensor:
    """uint8 [size_bytes], pinned if that can be had: a slab that is not is slower, not wrong."""
    try:
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:  # no device, or a limit on locked memory
        pass
    try:
        return torch.empty(size_bytes, dtype=torch.uint8)
    except RuntimeError as error:
        raise MemoryError(str(error)) from error
