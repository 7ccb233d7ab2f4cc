"""The bytes of a stream, when they go out, and what becomes of an answer whose reader or engine goes away."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from parkway.api import sse
from tests.api.conftest import Connect
from tests.api.fake import FINGERPRINT, FakeDoor

NEVER_PARKED = {"parks": 0, "recomputes": 0, "parked_ms": 0}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}], "seed": 5}
STREAM = HI | {"stream": True}


async def until(reached: Any) -> None:
    """Yields to the others until `reached()`; the test's time limit is the only clock."""
    while not reached():
        await asyncio.sleep(0.001)


def contents(text: str) -> list[Any]:
    frames = text.split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    return [frame if frame.endswith("[DONE]") else json.loads(frame[6:]) for frame in frames]


def test_event() -> None:
    assert sse.event({"a": "b\n\n\u2028é"}) == 'data: {"a":"b\\n\\n\u2028é"}\n\n'.encode()


@pytest.mark.parametrize("text", ["", "plain", '"quotes" \\ \n\r\n\n', "\0\x1f\x7f", "Grüße 🌍\u2028", "data: [DONE]"])
def test_split_around_a_text_is_the_event_with_it(text: str) -> None:
    before, after = sse.split({"delta": {"content": sse.TEXT_MARK}, "x": 1})
    assert before + sse.encode(text) + after == sse.event({"delta": {"content": text}, "x": 1})


async def test_chat_frames(within: Connect) -> None:
    async with within(FakeDoor('"é"\n')) as http:
        answer = await http.post(CHAT, json=STREAM | {"stream_options": {"include_usage": True}})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    *chunks, usage, done = contents(answer.text)
    assert done == "data: [DONE]"
    head = {key: chunks[0][key] for key in ("id", "created")}
    head |= {"object": "chat.completion.chunk", "model": "nick", "system_fingerprint": FINGERPRINT}
    assert chunks[-1].pop("timings")["predicted_n"] == 6
    deltas = [{"role": "assistant", "content": ""}, *({"content": text} for text in ['"', "é", '"', "\n"]), {}]
    assert chunks == [
        head
        | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}], "usage": None}
        | ({"parkway": {"seed": 5}, "preempt": NEVER_PARKED} if reason else {})
        for delta, reason in zip(deltas, [None] * 5 + ["stop"], strict=True)
    ]
    counts = {"prompt_tokens": 8, "completion_tokens": 6, "total_tokens": 14}
    assert usage == head | {"choices": [], "usage": counts | {"prompt_tokens_details": {"cached_tokens": 0}}}


async def test_completion_frames(within: Connect) -> None:
    async with within(FakeDoor("ab")) as http:
        answer = await http.post(COMPLETIONS, json={"prompt": "Hi", "seed": 5, "stream": True, "max_tokens": 2})
    *chunks, _ = contents(answer.text)
    assert [c["choices"] for c in chunks] == [
        [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}]
        for text, reason in [("a", None), ("b", None), ("", "length")]
    ]
    assert [c.get("parkway") for c in chunks] == [None, None, {"seed": 5}]
    assert "usage" not in chunks[0]


async def test_headers_and_role_go_out_before_the_first_token(live: Connect) -> None:
    async with live(door := FakeDoor("abc", paced=True)) as http, http.stream("POST", CHAT, json=STREAM) as answer:
        pieces = answer.aiter_text()
        assert answer.status_code == 200
        [opening] = contents(await anext(pieces))
        assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        door.step()
        [first] = contents(await anext(pieces))
        assert first["choices"][0]["delta"] == {"content": "a"}
        door.step(tokens=2)
        [second] = contents(await anext(pieces))
        assert second["choices"][0]["delta"] == {"content": "bc"}
        door.step()
        *_, last, done = contents("".join([piece async for piece in pieces]))
        assert (last["choices"][0]["finish_reason"], done) == ("stop", "data: [DONE]")


async def test_tokens_that_come_meanwhile_share_a_write(live: Connect) -> None:
    async with live(door := FakeDoor("abcd", paced=True)) as http, http.stream("POST", CHAT, json=STREAM) as answer:
        pieces = answer.aiter_text()
        await anext(pieces)
        door.step()
        door.step()  # before the stream's task has run
        chunks = contents(await anext(pieces))
        assert [c["choices"][0]["delta"]["content"] for c in chunks] == ["a", "b"]
        await answer.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_disconnect_frees_the_slot(live: Connect, stream: bool) -> None:
    async with live(door := FakeDoor(paced=True)) as http:
        body = HI | {"stream": stream, "n": 2}
        asking = asyncio.create_task(_read(http, body))
        await until(lambda: len(door.open) == 2)
        door.step()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: not door.open)
        assert sorted(door.cancelled) == [request.id for request in door.asked]
        assert 'finished_reason="abort",model_name="toy"} 2.0' in (await http.get("/metrics")).text


async def _read(http: httpx.AsyncClient, body: dict[str, Any]) -> None:
    async with http.stream("POST", CHAT, json=body) as answer:
        async for _ in answer.aiter_bytes():
            pass


async def test_engine_dies_within_a_stream(live: Connect) -> None:
    body = STREAM | {"n": 2}
    async with live(door := FakeDoor("abc", paced=True)) as http, http.stream("POST", CHAT, json=body) as answer:
        pieces = answer.aiter_text()
        await anext(pieces)
        door.die("the engine process was killed")
        [failure] = contents("".join([piece async for piece in pieces]))
    assert failure["error"]["type"] == "server_error"
    assert failure["error"]["message"] == "the engine process was killed"


async def test_engine_dies_under_a_whole_answer(within: Connect) -> None:
    async with within(door := FakeDoor(paced=True)) as http:
        posted = asyncio.create_task(http.post(CHAT, json=HI))
        await until(lambda: door.open)
        door.step()
        door.die("the engine process was killed")
        answer = await posted
    assert (answer.status_code, answer.json()["error"]["message"]) == (500, "the engine process was killed")


async def test_stop_string_is_never_begun(within: Connect) -> None:
    async with within(door := FakeDoor("one END two")) as http:
        answer = await http.post(CHAT, json=STREAM | {"stop": ["END", "ENTER"]})
    *chunks, _ = contents(answer.text)
    pieces = [c["choices"][0]["delta"].get("content", "") for c in chunks]
    assert "".join(pieces) == "one "
    assert not any("E" in piece for piece in pieces)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert door.cancelled == [door.asked[0].id]
