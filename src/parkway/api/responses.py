"""Answers as ASGI responses, streamed or whole, ended when the client goes away. Knows no route and no JSON field.

Starlette's own StreamingResponse costs an iterator and a task group for every piece, and nothing of it cancels a
response that is not streamed; so both are written here on the bare protocol.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from parkway.api.answer import Answer, Delta
from parkway.api.failures import error_body, status_of
from parkway.api.forms import ChatForm, CompletionForm
from parkway.api.pulse import Pulse
from parkway.api.sse import HEADERS, encode, event
from parkway.errors import ParkwayError

Form = ChatForm | CompletionForm


class _AnswerResponse(Response):
    """A response that is an answer in a form. Calls `left` when it is over, however it ended."""

    def __init__(self, answer: Answer, form: Form, left: Callable[[Answer], None]) -> None:
        super().__init__()
        self._answer = answer
        self._form = form
        self._left = left


class StreamedAnswer(_AnswerResponse):
    """Headers at once, then a write for each step's tokens or notices, and comments when there is nothing to say."""

    def __init__(self, answer: Answer, form: Form, left: Callable[[Answer], None], ping_seconds: float) -> None:
        super().__init__(answer, form, left)
        self._ping_seconds = ping_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with _watched(self._answer, receive, self._left):
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            if opening := self._form.opening():
                await send({"type": "http.response.body", "body": opening, "more_body": True})
            # A task of its own: each wake of this one would pass through every layer of the application.
            last = await asyncio.create_task(self._stream(send))
            await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _stream(self, send: Send) -> bytes:
        """Sends all but the last frames, which it returns."""
        answer, frames_of = self._answer, self._form.frames
        pulse = Pulse(asyncio.get_running_loop(), self._ping_seconds, answer.nudge)
        if self._form.tells_parks:
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
            return event(error_body(failure))
        finally:
            pulse.stop()
        return self._form.closing()


class WholeAnswer(_AnswerResponse):
    """One JSON body when everything has come."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with _watched(self._answer, receive, self._left):
            status, body = await self._finish()
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _finish(self) -> tuple[int, bytes]:
        deltas: list[Delta] = []
        try:
            while not self._answer.done:
                deltas += await self._answer.deltas()
        except ParkwayError as failure:
            return status_of(failure), encode(error_body(failure))
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
