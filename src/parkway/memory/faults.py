"""Test knobs: PARKWAY_PREEMPT_* variables that make copies fail or take long. Knows no device."""

import time
from collections.abc import Callable, Mapping

from parkway.config import variable_count
from parkway.errors import NoRoom
from parkway.memory.copies import Copies, CopiesAround
from parkway.plan.copies import Copy, Owner

FAIL_SAVE = "PARKWAY_PREEMPT_FAIL_SAVE"
SLOW_COPY_MS = "PARKWAY_PREEMPT_SLOW_COPY_MS"

WAIT_SECONDS = 0.01
"""For which a slow copy is waited for, before whoever waits looks for other events."""


def faulty(
    copies: Copies,
    environment: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Copies:
    """The same copies, unless a knob is set to more than 0. Raises BadSetting, which names the variable.

    FAIL_SAVE=n: the n-th park that is submitted, and only that, raises NoRoom.
    SLOW_COPY_MS=m: a copy is reported no earlier than m ms after its submission.
    """
    fails, slow_ms = variable_count(environment, FAIL_SAVE), variable_count(environment, SLOW_COPY_MS)
    if slow_ms:
        copies = SlowCopies(copies, slow_ms / 1000, clock, sleep)
    return FailingSave(copies, fails) if fails else copies


class FailingSave(CopiesAround):
    """`Copies` whose `nth` submitted park finds no memory."""

    def __init__(self, copies: Copies, nth: int) -> None:
        super().__init__(copies)
        self._parks_left = nth

    def submit(self, copy: Copy) -> None:
        if copy.owner is Owner.PARK:
            self._parks_left -= 1
            if self._parks_left == 0:
                raise NoRoom(f"{FAIL_SAVE}: no memory for this park")
        self._copies.submit(copy)


class SlowCopies(CopiesAround):
    """`Copies` that are reported no earlier than so many seconds after their submission."""

    def __init__(
        self, copies: Copies, seconds: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        super().__init__(copies)
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self._due: dict[int, float] = {}
        self._done: list[Copy] = []

    def submit(self, copy: Copy) -> None:
        self._copies.submit(copy)
        self._due[copy.id] = self._clock() + self._seconds

    def landed(self) -> list[Copy]:
        self._done += self._copies.landed()
        now = self._clock()
        landed = [copy for copy in self._done if self._due[copy.id] <= now]
        self._done = [copy for copy in self._done if self._due[copy.id] > now]
        for copy in landed:
            del self._due[copy.id]
        return landed

    def wait(self) -> None:
        if not self._done:
            self._copies.wait()
            self._done = self._copies.landed()
        self._sleep_until(min(self._clock() + WAIT_SECONDS, *(self._due[copy.id] for copy in self._done)))

    def drain(self) -> list[Copy]:
        self._done += self._copies.drain()
        self._sleep_until(max((self._due[copy.id] for copy in self._done), default=0.0))
        return self.landed()

    def _sleep_until(self, due: float) -> None:
        while (left := due - self._clock()) > 0:
            self._sleep(left)
