"""How others talk to an engine, and the door to one in a thread of this process. Knows nothing about what is asked."""

import itertools
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

from parkway.engine.engine import Engine
from parkway.engine.events import Arrive, Cancel, Event, Teach, run
from parkway.errors import EngineDied
from parkway.report import Facts, Report, Snapshot, View
from parkway.request import Output, Request, Vocabulary

logger = logging.getLogger(__name__)

Sink = Callable[[Output], None]


class Door(Protocol):
    """What everything above the engine sees of it. A sink must return soon and must not raise."""

    @property
    def facts(self) -> Facts: ...

    @property
    def snapshot(self) -> Snapshot:
        """The engine's counters after its last step."""

    @property
    def view(self) -> View:
        """The slots and durations that the engine told last; empty until then."""

    def next_id(self) -> int:
        """An id that no other request of this door has."""

    def teach(self, vocabulary: Callable[[], Vocabulary]) -> None:
        """Before the first request with a grammar: what the token ids stand for. Asked for once, however often called.

        The engine makes an index of it when nobody has been there for a second, or for the first grammar if that comes
        sooner; its steps pause for some tenths of a second then, once.
        """

    def submit(self, request: Request, sink: Sink) -> None:
        """Start a request; `sink` gets its outputs in order, the last with a finish reason. Raises EngineDied."""

    def cancel(self, request_id: int) -> None:
        """End a request; its sink is not called again. Does nothing if it has ended already."""

    def close(self) -> None:
        """End the engine; requests that are still open get an error."""


class Sinks:
    """Who gets the outputs of which open request. Safe to use from several threads, also from inside a sink."""

    def __init__(self) -> None:
        self._sinks: dict[int, Sink] = {}
        self._lock = threading.RLock()
        self._end: str | None = None

    def add(self, request_id: int, sink: Sink) -> None:
        """Raises EngineDied if the engine has gone, ValueError if the id is in use."""
        with self._lock:
            if self._end is not None:
                raise EngineDied(self._end)
            if request_id in self._sinks:
                raise ValueError(f"request {request_id} is already open")
            self._sinks[request_id] = sink

    def drop(self, request_id: int) -> bool:
        """Forget a request. False if it was not open."""
        with self._lock:
            return self._sinks.pop(request_id, None) is not None

    def deliver(self, outputs: list[Output]) -> None:
        sinks = self._sinks
        with self._lock:
            for output in outputs:
                take = sinks.get if output.finish_reason is None else sinks.pop
                sink = take(output.request_id, None)
                if sink is not None:
                    sink(output)

    def end(self, sentence: str) -> None:
        """Give every open request an error and refuse later ones. The first sentence stays."""
        with self._lock:
            self._end = self._end or sentence
            self.deliver([Output(each, finish_reason="error", error=self._end, died=True) for each in self._sinks])


class _QueueInbox:
    def __init__(self) -> None:
        self.queue: SimpleQueue[Event | None] = SimpleQueue()

    def take(self) -> list[Event] | None:
        return self._rest([])

    def wait(self, seconds: float | None = None) -> list[Event] | None:
        try:
            event = self.queue.get(timeout=seconds)
        except Empty:
            return []
        return None if event is None else self._rest([event])

    def _rest(self, events: list[Event]) -> list[Event] | None:
        while not self.queue.empty():
            event = self.queue.get()
            if event is None:
                return None
            events.append(event)
        return events


class ThreadDoor:
    """An engine in a thread. Sinks run on that thread; submit, cancel and close may be called from any other."""

    def __init__(self, engine: Engine) -> None:
        self.facts = engine.facts
        self.snapshot = engine.snapshot
        self.view = View()
        self._sinks = Sinks()
        self._inbox = _QueueInbox()
        self._ids = itertools.count()
        self._taught = False
        self._thread = threading.Thread(target=self._serve, args=(engine,), name="parkway-engine", daemon=True)
        self._thread.start()

    def next_id(self) -> int:
        return next(self._ids)

    def teach(self, vocabulary: Callable[[], Vocabulary]) -> None:
        if not self._taught:  # twice at once does no harm
            self._inbox.queue.put(Teach(vocabulary()))
            self._taught = True

    def submit(self, request: Request, sink: Sink) -> None:
        self._sinks.add(request.id, sink)
        self._inbox.queue.put(Arrive(request))

    def cancel(self, request_id: int) -> None:
        if self._sinks.drop(request_id):
            self._inbox.queue.put(Cancel(request_id))

    def close(self) -> None:
        self._inbox.queue.put(None)
        self._thread.join()

    def _serve(self, engine: Engine) -> None:
        try:
            run(engine, self._inbox, self._put)
        except Exception as error:
            logger.exception("the engine died")
            self._sinks.end(f"the engine died: {error}")
        else:
            self._sinks.end("the engine has been closed")

    def _put(self, report: Report) -> None:
        self.snapshot = report.snapshot
        self.view = report.view or self.view
        self._sinks.deliver(report.outputs)
