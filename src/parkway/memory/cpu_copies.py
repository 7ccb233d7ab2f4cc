"""Copies on the CPU: a thread that copies page after page beside those that compute, and host pages of plain memory."""

import ctypes as C
import threading
import weakref
from queue import SimpleQueue

import psutil

from parkway.backends.cpu.library import Memory
from parkway.errors import NoRoom
from parkway.memory.copy_engine import CopyEngine
from parkway.memory.host_pool import SLAB_BYTES, HostPool
from parkway.memory.page_store import Page, PageStore

STEP_BYTES = 2 * 2**20
"""Begun in one step: little, because the copying thread has no core of its own and takes time from those that compute.
Of larger pages it is one a step."""


class CpuEvent:
    """Happens when the lane's thread has come to it. If a copy before it failed, it raises RuntimeError when asked."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._failure: Exception | None = None

    @property
    def happened(self) -> bool:
        if not self._reached.is_set():
            return False
        self._check()
        return True

    def wait(self) -> None:
        self._reached.wait()
        self._check()

    def hold(self, queue: object) -> None:
        """Steps run on the thread that asks, and each is over when its launch returns: what waits for a copy waits
        here, and what a copy would wait for has always happened."""
        self.wait()

    def reach(self, failure: Exception | None) -> None:
        self._failure = failure
        self._reached.set()

    def _check(self) -> None:
        if self._failure is not None:
            told = str(self._failure) or type(self._failure).__name__
            raise RuntimeError(f"a copy of KV pages failed, so its chats can't go on: {told}") from self._failure


_Job = tuple[Page, Page] | CpuEvent | None
"""A page to copy (target, source), an event to reach, or the end."""


class CpuLane:
    """One thread, for both directions, since memory has no two. It ends when the lane goes, after what is queued."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=_work, args=(self.queue,), name="copies", daemon=True).start()
        weakref.finalize(self, self.queue.put, None)

    def copy(self, target: Page, source: Page) -> None:
        self.queue.put((target, source))

    def record(self) -> CpuEvent:
        event = CpuEvent()
        self.queue.put(event)
        return event


class CpuSlab:
    """Memory for pages of `page_bytes`, given by the system when first touched. Raises MemoryError."""

    pinned = False

    def __init__(self, page_bytes: int, size_bytes: int) -> None:
        if size_bytes > psutil.virtual_memory().available:  # the system would promise it all the same
            raise MemoryError
        try:
            self._memory = Memory(size_bytes, "parked chats")
        except NoRoom as error:
            raise MemoryError(str(error)) from error
        self.size_bytes = size_bytes
        self._page_bytes = page_bytes

    def page(self, index: int) -> Page:
        return Page(self._memory, self._memory.address + index * self._page_bytes, self._page_bytes)


def whole_pages(page_bytes: int, most_bytes: int) -> int:
    """Bytes of a slab of plain memory: as many pages as fit into a slab and into these bytes."""
    return min(max(SLAB_BYTES // page_bytes, 1), most_bytes // page_bytes) * page_bytes


def host_pool(store: PageStore, most_bytes: int) -> HostPool:
    """Host pages like the store's, as many as fit into so many bytes."""
    return HostPool(most_bytes, store.page_bytes, lambda size_bytes: CpuSlab(store.page_bytes, size_bytes), whole_pages)


def copy_engine(store: PageStore, host: HostPool) -> CopyEngine:
    lane = CpuLane()
    return CopyEngine(store, host, outward=lane, inward=lane, step_bytes=STEP_BYTES)


def _work(queue: "SimpleQueue[_Job]") -> None:
    """Does a lane's jobs. After a failure it copies nothing more, and every further event tells of it."""
    failure: Exception | None = None
    while (job := queue.get()) is not None:
        if isinstance(job, CpuEvent):
            job.reach(failure)
        elif failure is None:
            try:
                target, source = job
                C.memmove(target.address, source.address, source.size_bytes)  # without Python's lock
            except Exception as error:  # whoever asks for the copy gets it
                failure = error
