"""A door whose engine is ended while nobody asks, and started again by the next request. Knows no process.

Asleep, the engine holds nothing: no weights, no pool, no host memory. Nobody can be parked then, since it is ended only
when no request is open; what was cached is computed again, with the same bits.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec.structs import replace

from parkway.api.totals import snapshot_after, view_after
from parkway.engine.door import Door, Sink
from parkway.errors import EngineDied, StartError
from parkway.report import Facts, Snapshot, View
from parkway.request import Output, Request, Vocabulary

CLOSED = "the engine has been closed"


class MortalDoor(Door, Protocol):
    """What has one engine. `died` gets a sentence when that ends unasked; `watch` gets every view."""

    died: "asyncio.Future[str]"
    watch: Callable[[View], object]

    async def gone(self) -> None:
        """Waits, after `close`, until nothing is left of the engine."""


Start = Callable[[], Coroutine[Any, Any, MortalDoor]]


class SleepingDoor:
    """A door in front of one engine after the other. All of it runs on the event loop that made it, sinks too.

    `idle_seconds` after the last request the engine is ended; negative: never. Requests that come while there is none
    wait until it is up again. If it can't be started, or is of another model by then, it is as if it had died.
    """

    def __init__(self, door: MortalDoor, start: Start, idle_seconds: float, watch: Callable[[View], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self.died: asyncio.Future[str] = self._loop.create_future()
        self._start = start
        self._idle_seconds = idle_seconds
        self._watch = watch
        self._ids = itertools.count()
        self._door: MortalDoor | None = None
        self._ended_last = door
        self._facts = door.facts
        self._past, self._past_view = Snapshot(), View()
        """What the engines that have ended counted, and nothing in use."""
        self._open: set[int] = set()
        self._early: dict[int, tuple[Request, Sink]] = {}
        self._vocabulary: Callable[[], Vocabulary] | None = None
        self._waking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._end: str | None = None
        self._stand_before(door)
        self._tire()

    @property
    def sleeping(self) -> bool:
        """Whether there is no engine, or it is not up again yet."""
        return self._door is None

    @property
    def facts(self) -> Facts:
        return self._facts

    @property
    def snapshot(self) -> Snapshot:
        """Counters of all engines so far."""
        return self._past if self._door is None else snapshot_after(self._past, self._door.snapshot)

    @property
    def view(self) -> View:
        """Histograms of all engines so far."""
        return self._past_view if self._door is None else view_after(self._past_view, self._door.view)

    def next_id(self) -> int:
        return next(self._ids)

    def teach(self, vocabulary: Callable[[], Vocabulary]) -> None:
        self._vocabulary = vocabulary
        if self._door is not None:
            self._door.teach(vocabulary)

    def submit(self, request: Request, sink: Sink) -> None:
        if self._end is not None:
            raise EngineDied(self._end)
        if self._door is None:
            self._early[request.id] = request, self._heard(request.id, sink)
            self._wake()
        else:
            self._door.submit(request, self._heard(request.id, sink))
        self._open.add(request.id)

    def cancel(self, request_id: int) -> None:
        if self._door is not None:
            self._door.cancel(request_id)
        self._early.pop(request_id, None)
        self._ended(request_id)

    def sleep_when_idle(self) -> None:
        """Ends the engine now, or when the last open request has ended, parked ones too; those that come until then
        are waited for as well."""
        if self._door is None and self._waking is None:
            return
        self._soon = True
        self._sleep()

    def close(self) -> None:
        self._end = self._end or CLOSED
        if self._timer is not None:
            self._timer.cancel()
        if self._waking is not None:
            self._waking.cancel()
        if self._door is not None:
            self._end_engine(self._door)
        self._fail_early()

    async def gone(self) -> None:
        """Waits until nothing is left of engines that were ended."""
        if self._waking is not None and self._end is not None:
            await asyncio.wait((self._waking,))
        await self._ended_last.gone()

    def _end_engine(self, door: MortalDoor) -> None:
        door.close()
        self._ended_last = door

    def _stand_before(self, door: MortalDoor) -> None:
        self._door = door
        door.watch = self._watch
        door.died.add_done_callback(lambda died: self._die(died.result()))

    def _heard(self, request_id: int, sink: Sink) -> Sink:
        def heard(output: Output) -> None:
            if output.finish_reason is not None:
                self._ended(request_id)
            sink(output)

        return heard

    def _ended(self, request_id: int) -> None:
        if request_id in self._open:
            self._open.remove(request_id)
            self._tire()

    def _tire(self) -> None:
        """Sleeps a little later if nobody is here: the door is telling an output now, and can't be closed within."""
        if self._open or self._end is not None or not (self._soon or self._idle_seconds >= 0):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(0 if self._soon else self._idle_seconds, self._sleep)

    def _sleep(self) -> None:
        if self._open or self._door is None:
            return
        self._past = replace(self.snapshot, running=0, waiting=0, pages_used=0, parked=0, parked_bytes=0, host_bytes=0)
        self._past_view = replace(self.view, slots=[], at=0.0)
        door, self._door = self._door, None
        self._soon = False
        self._end_engine(door)

    def _wake(self) -> None:
        if self._waking is None:
            self._waking = self._loop.create_task(self._start_again())

    async def _start_again(self) -> None:
        try:
            await self._ended_last.gone()  # what it held is needed now
            door = await self._start()
        except StartError as error:
            self._die(f"the engine could not be started again: {error}")
            return
        finally:
            self._waking = None
        if door.facts.fingerprint != self._facts.fingerprint:
            self._end_engine(door)
            self._die("the model was changed while the engine slept")
            return
        self._stand_before(door)
        if self._vocabulary is not None:
            door.teach(self._vocabulary)
        early, self._early = self._early, {}
        for request, sink in early.values():
            door.submit(request, sink)
        self._tire()

    def _die(self, sentence: str) -> None:
        self._end = self._end or sentence
        self._fail_early()
        if not self.died.done():
            self.died.set_result(sentence)

    def _fail_early(self) -> None:
        early, self._early = self._early, {}
        for request_id, (_, sink) in early.items():
            sink(Output(request_id, finish_reason="error", error=self._end, died=True))
