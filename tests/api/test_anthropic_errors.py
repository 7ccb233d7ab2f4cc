"""Anthropic's error shape on its routes, and OpenAI's everywhere else."""

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from parkway.api import anthropic_failures
from parkway.api.app import create_app
from parkway.config import EngineSettings, ServerSettings
from tests.api.anthropic_chats import COUNT, HI, MESSAGES, STREAM, events
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor, byte_text
from tests.api.parked import until


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and type, of an answer whose ids agree."""
    told = answer.json()
    assert told.keys() == {"type", "error", "request_id"}
    assert told["type"] == "error"
    assert re.fullmatch("req_[0-9a-f]{24}", told["request_id"])
    assert told["request_id"] == answer.headers["request-id"]
    assert told["error"].keys() == {"type", "message"}
    return answer.status_code, told["error"]["type"]


@pytest.mark.parametrize("url", [MESSAGES, COUNT])
async def test_names_of_models(within: Connect, url: str) -> None:
    async with within(FakeDoor()) as http:
        for name in ("nick", "toy", "claude-sonnet-5", "claude-3-5-haiku-20241022"):
            assert (await http.post(url, json=HI | {"model": name})).status_code == 200, name
        other = await http.post(url, json=HI | {"model": "gpt-5"})
    assert error_of(other) == (404, "not_found_error")
    assert other.json()["error"]["message"] == "the model 'gpt-5' does not exist; this server has 'nick'"


@pytest.mark.parametrize(
    ("method", "url", "content", "expected"),
    [
        ("POST", MESSAGES, "{", (400, "invalid_request_error")),
        ("POST", MESSAGES, "[]", (400, "invalid_request_error")),
        ("POST", COUNT, "", (400, "invalid_request_error")),
        ("GET", MESSAGES, "", (405, "invalid_request_error")),
        ("POST", f"{MESSAGES}/batches", "{}", (404, "not_found_error")),
    ],
)
async def test_errors_before_any_route(
    within: Connect, method: str, url: str, content: str, expected: tuple[int, str]
) -> None:
    async with within(FakeDoor()) as http:
        assert error_of(await http.request(method, url, content=content)) == expected


async def test_other_routes_keep_their_shape(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        for url in ("/v1/chat/completions", "/v1/messagesque"):
            answer = await http.post(url, json={"messages": []})
            assert answer.json().keys() == {"error"}
            assert "request-id" not in answer.headers


async def test_a_server_that_drains_is_overloaded() -> None:
    app = create_app(FakeDoor(), byte_text(), EngineSettings(), ServerSettings())
    app.state.serving.draining = True
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://toy") as http:
        assert error_of(await http.post(MESSAGES, json=HI)) == (503, "overloaded_error")


async def test_an_engine_that_is_dead(within: Connect) -> None:
    async with within(door := FakeDoor()) as http:
        door.die()
        answer = await http.post(MESSAGES, json=HI)
    assert error_of(answer) == (500, "api_error")
    assert answer.json()["error"]["message"] == "the engine process was killed by SIGKILL"


async def test_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    door = FakeDoor()
    monkeypatch.setattr(door, "submit", lambda *_: 1 / 0)
    app = create_app(door, byte_text(), EngineSettings(), ServerSettings())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://toy") as http:
        answer = await http.post(MESSAGES, json=HI)
    assert (error_of(answer), answer.json()["error"]["message"]) == ((500, "api_error"), "internal error")


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_engine_that_dies_under_an_answer(within: Connect, streamed: bool) -> None:
    async with within(door := FakeDoor(paced=True)) as http:
        asking = asyncio.create_task(http.post(MESSAGES, json=STREAM if streamed else HI))
        await until(lambda: door.open)
        door.step()
        door.die("the engine process was killed")
        answer = await asking
    if not streamed:
        assert error_of(answer) == (500, "api_error")
        return
    *_, begun, failed = events(answer.text)
    assert begun["type"] == "content_block_delta"
    assert failed == {
        "type": "error",
        "error": {"type": "api_error", "message": "the engine process was killed"},
        "request_id": answer.headers["request-id"],
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_types(status: int, kind: str) -> None:
    error: dict[str, Any] = {"message": "m", "type": "t", "param": None, "code": None}
    told = anthropic_failures.told(error, status, "req_1")
    assert told == json.loads(f'{{"type":"error","error":{{"type":"{kind}","message":"m"}},"request_id":"req_1"}}')
