"""What happens to an engine, and the loop that lets it happen. Knows neither threads nor sockets: those are inboxes."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from parkway.engine.engine import Engine
from parkway.report import Report
from parkway.request import Request, Vocabulary


class Arrive(msgspec.Struct, frozen=True, array_like=True, tag="arrive"):
    request: Request

    def apply(self, engine: Engine) -> None:
        engine.arrive(self.request)


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    request_id: int

    def apply(self, engine: Engine) -> None:
        engine.cancel(self.request_id)


class Teach(msgspec.Struct, frozen=True, array_like=True, tag="teach"):
    vocabulary: Vocabulary

    def apply(self, engine: Engine) -> None:
        engine.teach(self.vocabulary)


Event = Arrive | Cancel | Teach

REST_SECONDS = 1.0
"""Without an event, until the engine does what can wait: a request that comes as soon as it can, or a moment behind
another, does not wait for that."""


class Inbox(Protocol):
    """Where events come from, in order. Both return None once the door is closed."""

    def take(self) -> list[Event] | None:
        """What is there now; never waits."""

    def wait(self, seconds: float | None = None) -> list[Event] | None:
        """At least one event; sleeps until it is there. None of them after so many seconds."""


def run(engine: Engine, inbox: Inbox, put: Callable[[Report], None]) -> None:
    """Serve until the inbox is closed. What a step raises comes through: a broken engine must not go on."""
    while (events := _wait(engine, inbox) if engine.idle else inbox.take()) is not None:
        for event in events:
            event.apply(engine)
        report = engine.step()
        if report is not None:
            put(report)
    engine.close()


def _wait(engine: Engine, inbox: Inbox) -> list[Event] | None:
    events = inbox.wait(REST_SECONDS)
    if events == []:
        engine.rest()
        events = inbox.wait()
    return events
