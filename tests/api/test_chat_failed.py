"""A chat that can't go on: it alone gets an error, streamed or not, that says so; the server goes on."""

import asyncio
import json
import math
from typing import Any

import pytest

from parkway.errors import ChatFailed, EngineDied
from parkway.request import Output, TokenLogprob
from tests.api.conftest import Connect
from tests.api.parked import ASKED, CHAT, COMPLETIONS, frames, paced, until

SENTENCE = "no token is allowed here"
ERROR = {"message": SENTENCE, "type": "server_error", "param": None, "code": "chat_failed"}
URLS = [CHAT, COMPLETIONS, "/v1/responses", "/v1/messages", "/completion"]
BODIES: dict[str, dict[str, Any]] = ASKED | {
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
    "/completion": {"prompt": "Hi"},
}


def test_only_the_end_of_the_engine_is_called_so() -> None:
    assert type(Output(1, finish_reason="error", error=SENTENCE).failure) is ChatFailed
    assert type(Output(1, finish_reason="error", error=SENTENCE, died=True).failure) is EngineDied


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("stream", [False, True])
async def test_the_error_is_of_that_chat_alone(within: Connect, url: str, stream: bool) -> None:
    door = paced()
    async with within(door) as http:
        asking = asyncio.create_task(http.post(url, json=BODIES[url] | {"stream": stream}))
        beside = asyncio.create_task(http.post(CHAT, json=ASKED[CHAT] | {"stream": False, "max_tokens": 2}))
        await until(lambda: len(door.open) == 2)
        door.step()
        door.open.pop(0).sink(Output(0, finish_reason="error", error=SENTENCE))
        answer = await asking
        door.step()
        assert (await beside).status_code == 200
        assert (await http.get("/health")).status_code == 200
    assert SENTENCE in answer.text
    assert "engine_died" not in answer.text
    assert answer.status_code == (200 if stream else 500)
    if url in (CHAT, COMPLETIONS):
        told = frames(answer.text)[-1].removeprefix("data: ") if stream else answer.text
        assert json.loads(told)["error"] == ERROR


LOWEST = {CHAT: "-9999.0", COMPLETIONS: "-9999.0", "/completion": "-3.4028234663852886e38"}


@pytest.mark.parametrize("url", LOWEST)
async def test_an_impossible_token_has_a_log_probability_that_json_can_hold(within: Connect, url: str) -> None:
    wanted: dict[str, Any] = {CHAT: {"logprobs": True}, COMPLETIONS: {"logprobs": 1}, "/completion": {"n_probs": 1}}
    door = paced()
    async with within(door) as http:
        asking = asyncio.create_task(http.post(url, json=BODIES[url] | wanted[url] | {"stream": False}))
        await until(lambda: door.open)
        rows = [TokenLogprob(9, 65, -math.inf, [(66, -0.5), (65, -math.inf)])]
        door.open.pop(0).sink(Output(0, [65], rows, finish_reason="length"))
        answer = await asking
    assert answer.status_code == 200
    assert answer.text.count(LOWEST[url]) == 2
