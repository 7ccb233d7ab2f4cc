"""Answers as ASGI responses, streamed or whole, ended when the client goes away. Knows no route and no JSON field.

Starlette's own StreamingResponse costs an iterator and a task group for every piece, and nothing of it cancels a
response that is not streamed; so both are written here on the bare protocol.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from parkway.api.answer import Answer
from parkway.api.choice import Delta
from parkway.api.exchange import past_layers
from parkway.api.failures import status_of
from parkway.api.pulse import Pulse
from parkway.api.sse import HEADERS
from parkway.errors import ParkwayError

Header = tuple[bytes, bytes]


class WholeForm(Protocol):
    """How an API writes the whole body of one answer."""

    def body(self, deltas: Sequence[Delta]) -> bytes:
        """The whole answer out of everything that came."""

    def failure_body(self, failure: ParkwayError) -> bytes:
        """… of one that failed."""


class Form(WholeForm, Protocol):
    """… and the frames of its stream. It is told every delta once, by one of the two."""

    @property
    def tells_parks(self) -> bool:
        """Whether the stream has notices, and keepalives while a chat is parked."""

    @property
    def keepalive(self) -> bytes:
        """The frame of a stream that is silent because a chat is parked."""

    @property
    def ping(self) -> bytes:
        """The frame of one that is silent for another reason."""

    def opening(self) -> bytes:
        """The frames that go out with the headers."""

    def frames(self, delta: Delta) -> bytes:
        """Those of one delta, perhaps none."""

    def closing(self) -> bytes:
        """The last frames."""

    def failed(self, failure: ParkwayError) -> bytes:
        """… of a stream that failed."""


class _AnswerResponse(Response):
    """A response that is an answer in a form. Calls `left` when it is over, however it ended."""

    def __init__(
        self, answer: Answer, form: WholeForm, left: Callable[[Answer], None], more_headers: Sequence[Header] = ()
    ) -> None:
        super().__init__()
        self._answer = answer
        self._form = form
        self._left = left
        self._more_headers = more_headers


class StreamedAnswer(_AnswerResponse):
    """Headers at once, then a write for each step's tokens or notices, and comments when there is nothing to say."""

    _form: Form

    def __init__(
        self,
        answer: Answer,
        form: Form,
        left: Callable[[Answer], None],
        ping_seconds: float,
        more_headers: Sequence[Header] = (),
    ) -> None:
        super().__init__(answer, form, left, more_headers)
        self._ping_seconds = ping_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with _watched(self._answer, receive, self._left):
            await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *self._more_headers]})
            send = past_layers(scope, send)
            if opening := self._form.opening():
                await send({"type": "http.response.body", "body": opening, "more_body": True})
            # A task of its own: each wake of this one would pass through every layer of the application.
            last = await asyncio.create_task(self._stream(send))
            await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _stream(self, send: Send) -> bytes:
        """Sends all but the last frames, which it returns."""
        answer, frames_of = self._answer, self._form.frames
        form, loop = self._form, asyncio.get_running_loop()
        pulse = Pulse(loop, self._ping_seconds, answer.nudge, keepalive=form.keepalive, ping=form.ping)
        if form.tells_parks:
            answer.on_parked = pulse.watch
        try:
            while not answer.done:
                frames = b"".join(map(frames_of, await answer.deltas()))
                if pulse.due:
                    frames = pulse.take() + frames
                if frames:
                    await send({"type": "http.response.body", "body": frames, "more_body": True})
                    if pulse.pings:
                        pulse.wrote()
        except ParkwayError as failure:
            return form.failed(failure)
        finally:
            pulse.stop()
        return form.closing()


class WholeAnswer(_AnswerResponse):
    """One JSON body when everything has come."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with _watched(self._answer, receive, self._left):
            status, body = await self._finish()
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": status, "headers": [*headers, *self._more_headers]})
            await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _finish(self) -> tuple[int, bytes]:
        deltas: list[Delta] = []
        try:
            while not self._answer.done:
                deltas += await self._answer.deltas()
        except ParkwayError as failure:
            return status_of(failure), self._form.failure_body(failure)
        return 200, self._form.body(deltas)


@asynccontextmanager
async def _watched(answer: Answer, receive: Receive, left: Callable[[Answer], None]) -> AsyncIterator[None]:
    """Cancels the answer as soon as the client has gone, and in any case when the response is over."""
    watch = asyncio.create_task(_cancel_on_disconnect(answer, receive))
    try:
        yield
    except ClientDisconnect:
        pass
    finally:
        watch.cancel()
        answer.cancel(ClientDisconnect())
        left(answer)


async def _cancel_on_disconnect(answer: Answer, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    answer.cancel(ClientDisconnect())
