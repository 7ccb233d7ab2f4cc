"""Every request's id, and its line in the log."""

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from parkway.api import request_log
from parkway.logs import Json
from parkway.request import Preempt
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor, byte_text

CHAT, MESSAGES, COMPLETIONS = "/v1/chat/completions", "/v1/messages", "/v1/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
MADE = re.compile("req_[0-9a-f]{24}")


class Kept(logging.Handler):
    """`fields` and `sentences` of every line."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: list[dict[str, Any]] = []
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.fields.append(json.loads(Json().format(record)))
        self.sentences.append(record.getMessage())


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, logger = Kept(), request_log.logger
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(handler)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_every_answer_has_an_id(live: Connect, path: str, stream: bool) -> None:
    async with live(FakeDoor("abc")) as http:
        answer = await http.post(path, json=HI | {"stream": stream})
        other = await http.post(path, json=HI | {"stream": stream})
        refused = await http.post(path, json={})
        unknown = await http.get(f"{path}/nothing")
    ids = [each.headers["x-request-id"] for each in (answer, other, refused, unknown)]
    assert len(set(ids)) == 4
    assert all(map(MADE.fullmatch, ids))
    for each in (answer, refused, unknown):
        assert each.headers.get("request-id") == (each.headers["x-request-id"] if path == MESSAGES else None)
    assert answer.headers.get_list("x-request-id") == ids[:1]
    if path == MESSAGES:
        assert refused.json()["request_id"] == ids[2]


@pytest.mark.parametrize("name", ["a", "7f3c-4b/…".replace("…", "9=+@:._"), "x" * 128])
async def test_a_sane_id_of_the_client_is_kept(within: Connect, name: str) -> None:
    async with within(FakeDoor("abc")) as http:
        for path in (CHAT, MESSAGES, "/health", "/nothing"):
            answer = await http.post(path, json=HI, headers={"x-request-id": name})
            assert answer.headers["x-request-id"] == name


@pytest.mark.parametrize("name", ["", "x" * 129, "two words", 'quo"te', "semi;colon", "é"])
async def test_others_are_replaced(within: Connect, name: str) -> None:
    async with within(FakeDoor("abc")) as http:
        answer = await http.get("/health", headers=[(b"x-request-id", name.encode())])
    assert MADE.fullmatch(answer.headers["x-request-id"])


async def test_a_bug_has_an_id_and_a_line(within: Connect, kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parkway.api.openai._model", lambda serving: 1 / 0)
    async with within(FakeDoor()) as http:
        with pytest.raises(ZeroDivisionError):
            await http.get("/v1/models")
    assert [(line["route"], line["status"]) for line in kept.fields] == [("/v1/models", 500)]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_line_for_each(live: Connect, kept: Kept, stream: bool) -> None:
    door = FakeDoor("abc", cached=[1], preempt=Preempt(2, 1, 2808))
    async with live(door, api_key=("k",)) as http:
        await http.post(CHAT, json=HI | {"stream": stream, "n": 2}, headers={"x-api-key": "k", "x-request-id": "one"})
    [line] = kept.fields
    assert line.pop("time")
    assert line.pop("message") == kept.sentences[0]
    assert 0 < line.pop("first_token_ms") <= line.pop("total_ms")
    prompt = len(byte_text().chat_text([{"role": "user", "content": "Hi"}], add_generation_prompt=True))
    assert line == {
        "level": "info",
        "logger": "parkway.api.request_log",
        "event": "request",
        "request_id": "one",
        "method": "POST",
        "route": CHAT,
        "status": 200,
        "client": "8254c329",
        "prompt_tokens": prompt,
        "cached_tokens": 1,
        "answer_tokens": 8,
        "parks": 4,
        "parked_ms": 5616,
        "finish_reasons": ["stop", "stop"],
    }
    times = r"one POST /v1/chat/completions 200 \d+ ms, client 8254c329: "
    tokens = rf"{prompt} \+ 8 tokens \(1 cached\), the first after \d+ ms, parked 4 x for 5616 ms, stop, stop"
    assert re.fullmatch(times + tokens, kept.sentences[0])


async def test_lines_of_requests_without_an_answer(within: Connect, kept: Kept) -> None:
    async with within(FakeDoor(), api_key=("k",)) as http:
        key = {"x-api-key": "k"}
        await http.get("/v1/models/nothing", headers=key)
        await http.post(CHAT, json={}, headers=key)
        await http.get("/nothing?key=secret", headers=key)
        await http.get("/v1/models", headers={"x-api-key": "not-the-key"})
        for path in ("/health", "/v1/health", "/metrics", "/slots"):
            await http.get(path, headers=key)
    told = [(line["route"], line["status"]) for line in kept.fields]
    assert told == [("/v1/models/{name:path}", 404), (CHAT, 400), ("unknown", 404), ("unknown", 401)]
    assert not any("secret" in line or "not-the-key" in line for line in kept.sentences)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves(live: Connect, kept: Kept, stream: bool) -> None:
    door = FakeDoor("abc", paced=True)
    async with live(door) as http:
        asking = asyncio.create_task(http.post(CHAT, json=HI | {"stream": stream}))
        while not door.open:
            await asyncio.sleep(0)
        door.step()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        while not kept.fields:
            await asyncio.sleep(0)
    [line] = kept.fields
    assert (line["status"], line["finish_reasons"]) == (200 if stream else 499, ["abort"])


async def test_an_engine_that_dies(live: Connect, kept: Kept) -> None:
    door = FakeDoor("abc", paced=True)
    async with live(door) as http:
        asking = asyncio.create_task(http.post(CHAT, json=HI))
        while not door.open:
            await asyncio.sleep(0)
        door.die()
        assert (await asking).status_code == 500
    assert kept.fields[0]["finish_reasons"] == ["error"]


async def test_requests_are_counted_by_route_method_and_class_of_status(within: Connect) -> None:
    async with within(FakeDoor("abc"), api_key=("k",)) as http:
        key = {"x-api-key": "k"}
        await http.post(CHAT, json=HI, headers=key)
        await http.post(CHAT, json=HI, headers=key)
        await http.post(COMPLETIONS, json={}, headers=key)
        await http.get("/v1/models")
        await http.get("/nothing", headers=key)
        page = (await http.get("/metrics", headers=key)).text
    told = sorted(line for line in page.splitlines() if line.startswith("http_requests_total"))
    assert told == [
        'http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 2.0',
        'http_requests_total{handler="/v1/completions",method="POST",status="4xx"} 1.0',
        'http_requests_total{handler="none",method="GET",status="4xx"} 2.0',
    ]
    assert 'parkway:rejected_requests_total{model_name="nick",reason="key"} 1.0' in page
