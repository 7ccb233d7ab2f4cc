"""A pool that is full where nobody may be parked: the chats that ran get llama-server's sentence, the server lives."""

import asyncio

import pytest

from parkway.request import POOL_FULL, Output
from tests.api.conftest import Connect
from tests.api.parked import ASKED, CHAT, COMPLETIONS, frames, paced, until

ERROR = {"message": POOL_FULL, "type": "server_error", "param": None, "code": "pool_full"}


@pytest.mark.parametrize("url", [CHAT, COMPLETIONS])
async def test_a_stream_ends_with_the_error(within: Connect, url: str) -> None:
    door = paced()
    async with within(door) as http:
        asking = asyncio.create_task(http.post(url, json=ASKED[url]))
        await until(lambda: door.open)
        door.step()
        (opened,) = door.open.values()
        opened.sink(Output(0, finish_reason="error", error=POOL_FULL))
        door.open.clear()
        told = frames((await asking).text)
        assert (await http.get("/health")).status_code == 200
    assert '"code":"pool_full"' in told[-1]
    assert POOL_FULL in told[-1]


async def test_whoever_waits_for_a_whole_answer_gets_a_500(within: Connect) -> None:
    door = paced()
    async with within(door) as http:
        asking = asyncio.create_task(http.post(COMPLETIONS, json=ASKED[COMPLETIONS] | {"stream": False}))
        await until(lambda: door.open)
        (opened,) = door.open.values()
        opened.sink(Output(0, finish_reason="error", error=POOL_FULL))
        answer = await asking
    assert answer.status_code == 500
    assert answer.json() == {"error": ERROR}
