"""A fake door's chats that are parked and come back, and the streams that tell of it taken apart."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from tests.api.conftest import Connect
from tests.api.fake import FakeDoor

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}], "seed": 5, "stream": True},
    COMPLETIONS: {"prompt": "Hi", "seed": 5, "stream": True},
}
Act = Callable[[FakeDoor], None]


async def until(reached: Any) -> None:
    while not reached():
        await asyncio.sleep(0.001)


def park(request_id: int = 0) -> Act:
    return lambda door: door.notify("preempted", request_id, ahead=2)


def resume(request_id: int = 0) -> Act:
    return lambda door: door.notify("resumed", request_id, ahead=0, waited_ms=40)


def recomputed(request_id: int = 0) -> Act:
    return lambda door: door.notify("recomputed", request_id)


def step(door: FakeDoor) -> None:
    door.step()


def paced(answer: str = "abc", **fields: Any) -> FakeDoor:
    return FakeDoor(answer, paced=True, **fields)


async def stream(within: Connect, door: FakeDoor, url: str, *acts: Act, chats: int = 1, **fields: Any) -> str:
    """The whole stream of a paced door that does `acts`, then steps until the end."""
    async with within(door) as http:
        asking = asyncio.create_task(http.post(url, json=ASKED[url] | fields))
        await until(lambda: len(door.open) == chats)
        for act in acts:
            act(door)
        while door.open:
            door.step()
        answer = await asking
    assert answer.status_code == 200, answer.text
    return answer.text


def frames(text: str) -> list[str]:
    *whole, rest = text.split("\n\n")
    assert rest == ""
    return whole


def comments(text: str) -> list[str]:
    return [frame for frame in frames(text) if frame.startswith(":")]


def chunks(text: str) -> list[dict[str, Any]]:
    told = [frame.removeprefix("data: ") for frame in frames(text) if not frame.startswith(":")]
    assert told.pop() == "[DONE]"
    return [json.loads(each) for each in told]


class Frames:
    """The frames of a stream that is still being written."""

    def __init__(self, answer: httpx.Response) -> None:
        self._frames = self._read(answer)

    async def take(self, count: int) -> list[str]:
        return [await anext(self._frames) for _ in range(count)]

    async def until(self, last: str) -> list[str]:
        """The frames before `last`."""
        told = []
        while (frame := await anext(self._frames)) != last:
            told.append(frame)
        return told

    async def _read(self, answer: httpx.Response) -> AsyncIterator[str]:
        rest = ""
        async for text in answer.aiter_text():
            *whole, rest = (rest + text).split("\n\n")
            for frame in whole:
                yield frame


async def gone_while_parked(http: httpx.AsyncClient, door: FakeDoor, url: str, body: dict[str, Any]) -> None:
    """Asks, is parked, and goes away; returns when nobody is left."""

    async def read() -> None:
        async with http.stream("POST", url, json=body) as answer:
            await answer.aread()

    asking = asyncio.create_task(read())
    await until(lambda: door.open)
    door.step()
    door.notify("preempted")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: not door.open)
