"""What the engine sees of copies between the pool and the host's pages, on either device."""

from typing import Protocol

from parkway.plan.copies import Copy


class Copies(Protocol):
    """Carries out planned copies. Whoever plans them pins their pages until they have landed."""

    @property
    def pages(self) -> int:
        """Of the host pool; 0 where not one fits."""

    @property
    def page_bytes(self) -> int: ...

    @property
    def held_bytes(self) -> int:
        """What the host's pages take of the machine's memory, used or idle."""

    def submit(self, copy: Copy) -> None:
        """Takes a copy in, behind the steps that have been launched. Raises NoRoom, with nothing begun, where the
        host's memory can't be had."""

    def advance(self) -> None:
        """Begins what one step may begin. Call it once a step."""

    def landed(self) -> list[Copy]:
        """Copies that have been done since this was last asked. Never waits."""

    def wait(self) -> None:
        """Begins everything that is open and sleeps until one copy has landed, but never long. One must be open."""

    def make_ready(self) -> None:
        """Has memory for some parks before anything runs that could wait for it."""

    def reserve(self) -> None:
        """Parks are near: begins to get the host's memory for some, beside everything else, where that takes long."""

    def release(self) -> None:
        """Gives the host's memory back, but for what takes long to get. Nothing may be open; what was there is gone."""

    def drain(self) -> list[Copy]:
        """Begins everything, waits for it and returns what had not landed."""


class CopiesAround:
    """`Copies` that pass everything on to others. Who derives from it changes what it is there for."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self.pages = copies.pages
        self.page_bytes = copies.page_bytes

    @property
    def held_bytes(self) -> int:
        return self._copies.held_bytes

    def submit(self, copy: Copy) -> None:
        self._copies.submit(copy)

    def advance(self) -> None:
        self._copies.advance()

    def landed(self) -> list[Copy]:
        return self._copies.landed()

    def wait(self) -> None:
        self._copies.wait()

    def make_ready(self) -> None:
        self._copies.make_ready()

    def reserve(self) -> None:
        self._copies.reserve()

    def release(self) -> None:
        self._copies.release()

    def drain(self) -> list[Copy]:
        return self._copies.drain()
