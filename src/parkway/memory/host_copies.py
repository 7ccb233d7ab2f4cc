"""Copies between a pool and host pages, on either device: beside the steps, or each at once."""

from parkway.errors import NoRoom
from parkway.memory.copy_engine import CopyEngine
from parkway.memory.host_pool import HostPool
from parkway.plan.copies import Copy, Owner


class HostCopies:
    """`Copies` by an engine that copies to and from this host pool. `beside` as a runner's `copies` has it.
    `spare_bytes` are reserved: memory that is to be there before a park needs it.

    A copy that fails comes out of `advance`, `landed`, `wait` or `drain` as the device's exception, since its pages are
    lost.
    """

    def __init__(self, engine: CopyEngine, host: HostPool, *, beside: bool, spare_bytes: int = 0) -> None:
        self._spare_bytes = spare_bytes
        self._engine = engine
        self._host = host
        self._beside = beside
        self._landed: list[Copy] = []

    @property
    def pages(self) -> int:
        return self._host.pages

    @property
    def page_bytes(self) -> int:
        return self._host.page_bytes

    @property
    def held_bytes(self) -> int:
        return self._host.held_bytes

    def submit(self, copy: Copy) -> None:
        if copy.owner is Owner.SAVE_AHEAD and self._spare_bytes and not self._host.has(copy.targets):
            raise NoRoom("saving ahead must not wait for memory")
        self._engine.submit(copy)
        if not self._beside:
            self._landed += self._engine.drain()

    def advance(self) -> None:
        self._engine.advance()

    def landed(self) -> list[Copy]:
        landed, self._landed = self._landed + self._engine.landed(), []
        return landed

    def wait(self) -> None:
        if not self._landed:
            self._engine.wait()

    def make_ready(self) -> None:
        self._host.make_ready(self._spare_bytes)

    def reserve(self) -> None:
        self._host.reserve(self._spare_bytes)

    def release(self) -> None:
        self._host.release(self._spare_bytes)

    def drain(self) -> list[Copy]:
        landed, self._landed = self._landed + self._engine.drain(), []
        return landed
