"""When a stream that says nothing is due a comment: a ping, or a keepalive while a chat is parked. Knows no socket."""

from collections.abc import Callable
from typing import Any, Protocol

from parkway.api.sse import KEEPALIVE, PING

KEEPALIVE_SECONDS = 2.0


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """What an event loop has."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], Any], /) -> Timer: ...


class Pulse:
    """One timer of the loop, armed while a chat is parked or pings are on; otherwise it costs nothing.

    `ping_seconds` of silence make a ping due, if there are that many: 0 or less stands for no pings. While a chat is
    parked a keepalive is due every `KEEPALIVE_SECONDS`, or every `ping_seconds` if that is shorter, whatever other
    chats of the stream say meanwhile. `wake` is called when something is due. `wrote` need be called only if `pings`.
    """

    def __init__(
        self,
        clock: Clock,
        ping_seconds: float,
        wake: Callable[[], None],
        *,
        keepalive: bytes = KEEPALIVE,
        ping: bytes = PING,
    ) -> None:
        self.pings = ping_seconds > 0
        self.due = b""
        self._clock = clock
        self._ping_seconds = ping_seconds
        self._wake = wake
        self._keepalive = keepalive
        self._ping = ping
        self._parked = False
        self._timer: Timer | None = None
        self._wrote_at = clock.time()
        self._arm(self._wrote_at)

    def wrote(self) -> None:
        self._wrote_at = self._clock.time()

    def watch(self, parked: bool) -> None:
        """From now on some chat of the stream is parked, or none is."""
        self._parked = parked
        self.due = b""
        self._arm(self._clock.time())

    def take(self) -> bytes:
        """The frame that is due, once; b"" if none is."""
        due, self.due = self.due, b""
        return due

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _period(self) -> float:
        if not self._parked:
            return self._ping_seconds
        return min(self._ping_seconds, KEEPALIVE_SECONDS) if self.pings else KEEPALIVE_SECONDS

    def _arm(self, since: float) -> None:
        self.stop()
        if self._parked or self.pings:
            self._timer = self._clock.call_at(since + self._period, self._fire)

    def _fire(self) -> None:
        now = self._clock.time()
        if not self._parked and now < self._wrote_at + self._ping_seconds:
            self._arm(self._wrote_at)
            return
        self.due = self._keepalive if self._parked else self._ping
        self._arm(now)
        self._wake()
