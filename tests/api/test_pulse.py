"""When a comment is due, on a clock that the test turns."""

from collections.abc import Callable
from typing import Any

import pytest

from parkway.api.pulse import Pulse
from parkway.api.sse import KEEPALIVE, PING


class Armed:
    def __init__(self, when: float, callback: Callable[[], Any]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[Armed] = []

    @property
    def armed(self) -> list[Armed]:
        return [timer for timer in self._timers if not timer.cancelled]

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], Any], /) -> Armed:
        self._timers.append(Armed(when, callback))
        return self._timers[-1]

    def turn(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.armed if timer.when <= end]:
            first = min(due, key=lambda timer: timer.when)
            self._timers.remove(first)
            self.now = first.when
            first.callback()
        self.now = end


class Stream:
    """Writes what is due as soon as it is woken, and remembers when that was."""

    def __init__(self, ping_seconds: float) -> None:
        self.clock = HandClock()
        self.written: list[tuple[float, bytes]] = []
        self.pulse = Pulse(self.clock, ping_seconds, self._wake)

    def _wake(self) -> None:
        self.written.append((self.clock.now - 100, self.pulse.take()))
        if self.pulse.pings:
            self.pulse.wrote()


@pytest.mark.parametrize("none", [-1.0, 0.0])
def test_without_pings_there_is_no_timer_until_a_chat_is_parked(none: float) -> None:
    stream = Stream(none)
    assert not stream.pulse.pings
    assert not stream.clock.armed
    stream.pulse.watch(parked=True)
    assert len(stream.clock.armed) == 1
    stream.pulse.watch(parked=False)
    assert not stream.clock.armed
    stream.clock.turn(3600)
    assert stream.written == []


def test_a_keepalive_every_two_seconds_while_parked() -> None:
    stream = Stream(-1)
    stream.clock.turn(0.5)
    stream.pulse.watch(parked=True)
    stream.clock.turn(7)
    assert stream.written == [(at, KEEPALIVE) for at in (2.5, 4.5, 6.5)]


@pytest.mark.parametrize(("ping_seconds", "period"), [(0.5, 0.5), (2.0, 2.0), (30.0, 2.0)])
def test_a_shorter_ping_is_kept_while_parked_and_a_longer_one_is_not(ping_seconds: float, period: float) -> None:
    stream = Stream(ping_seconds)
    stream.pulse.watch(parked=True)
    stream.clock.turn(period * 3)
    assert stream.written == [(period * n, KEEPALIVE) for n in (1, 2, 3)]


def test_a_ping_comes_after_silence_only() -> None:
    stream = Stream(5)
    for _ in range(4):
        stream.clock.turn(3)
        stream.pulse.wrote()
    assert stream.written == []
    stream.clock.turn(11)
    assert stream.written == [(12 + 5, PING), (12 + 10, PING)]
    assert len(stream.clock.armed) == 1


def test_pings_go_on_when_the_chat_is_back() -> None:
    stream = Stream(5)
    stream.pulse.watch(parked=True)
    stream.clock.turn(3)
    stream.pulse.watch(parked=False)
    stream.pulse.wrote()
    stream.clock.turn(6)
    assert stream.written == [(2, KEEPALIVE), (8, PING)]


def test_what_was_due_before_the_chat_came_back_is_not_written_behind_it() -> None:
    clock = HandClock()
    pulse = Pulse(clock, -1, lambda: None)
    pulse.watch(parked=True)
    clock.turn(2)
    assert pulse.due == KEEPALIVE
    pulse.watch(parked=False)
    assert pulse.take() == b""


def test_stop_ends_it() -> None:
    stream = Stream(5)
    stream.pulse.watch(parked=True)
    stream.pulse.stop()
    assert not stream.clock.armed
