"""A small pool on each device and copies of its pages, for tests of what the engine sees of them."""

import ctypes as C
from random import Random
from typing import Protocol

import torch

from parkway.backends import KvShape
from parkway.backends.cuda.device import Device
from parkway.memory import cpu_copies, cuda_copies
from parkway.memory.cuda_page_store import CudaPageStore
from parkway.memory.host_copies import HostCopies
from parkway.memory.page_store import PageStore

PAGES = 8


class Rig(Protocol):
    """A pool of 8 pages and copies between it and host pages."""

    page_bytes: int

    def copies(self, most_bytes: int, *, beside: bool = True) -> HostCopies: ...
    def read(self, page: int) -> bytes: ...
    def write(self, page: int, held: bytes) -> None: ...


class CpuRig:
    page_bytes = 5000

    def __init__(self) -> None:
        self.store = PageStore(PAGES * 64, self.page_bytes)

    def copies(self, most_bytes: int, *, beside: bool = True) -> HostCopies:
        host = cpu_copies.host_pool(self.store, most_bytes)
        return HostCopies(cpu_copies.copy_engine(self.store, host), host, beside=beside)

    def read(self, page: int) -> bytes:
        return C.string_at(self.store.page(page).address, self.page_bytes)

    def write(self, page: int, held: bytes) -> None:
        assert len(held) == self.page_bytes
        C.memmove(self.store.page(page).address, held, self.page_bytes)


class TorchRig:
    """On the GPU, or with its code on the CPU."""

    def __init__(self) -> None:
        self.device = Device.found()
        self.store = CudaPageStore(PAGES * 64, KvShape(layers=2, kv_heads=1, head_dim=16), self.device.torch)
        self.page_bytes = self.store.page_bytes

    def copies(self, most_bytes: int, *, beside: bool = True) -> HostCopies:
        host = cuda_copies.host_pool(self.store, most_bytes)
        return HostCopies(cuda_copies.copy_engine(self.store, host, self.device), host, beside=beside)

    def read(self, page: int) -> bytes:
        return self._flat(page).cpu().numpy().tobytes()

    def write(self, page: int, held: bytes) -> None:
        self._flat(page).copy_(torch.frombuffer(bytearray(held), dtype=torch.uint8))
        if self.device.is_gpu:
            torch.cuda.synchronize()

    def _flat(self, page: int) -> torch.Tensor:
        return self.store.page(page).flatten().view(torch.uint8)


def filled(rig: Rig) -> Rig:
    chance = Random(1)
    for page in range(PAGES):
        rig.write(page, chance.randbytes(rig.page_bytes))
    return rig


def held(rig: Rig) -> list[bytes]:
    return [rig.read(page) for page in range(PAGES)]
