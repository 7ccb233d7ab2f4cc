"""What the port says before there is a model, and signals and failures then."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from parkway.api import server as served
from parkway.api.server import Server, listen
from parkway.config import EngineSettings, ServerSettings
from parkway.engine.process_door import ProcessDoor
from parkway.errors import BadFile
from parkway.text import ModelText
from tests.api.fake import FakeDoor, byte_text

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
HI = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@asynccontextmanager
async def loading(**settings: object) -> AsyncIterator[tuple[Server, httpx.AsyncClient]]:
    listener = listen("127.0.0.1", 0)
    host, port = listener.getsockname()
    server = Server(EngineSettings(), ServerSettings(**settings))  # type: ignore[arg-type]
    serving = asyncio.create_task(server.serve([listener]))
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}") as client:
        yield server, client
    server.should_exit = True
    await serving


async def test_the_port_answers_before_there_is_a_model() -> None:
    async with loading() as (server, http):
        for path in ("/health", "/v1/health"):
            health = await http.get(path)
            assert (health.status_code, health.json()) == (503, {"status": "loading model"})
        refused = await http.post(CHAT, json=HI)
        assert refused.status_code == 503
        assert refused.json() == {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["x-request-id"].startswith("req_")
        theirs = (await http.post(MESSAGES, json=HI)).json()
        assert theirs["error"] == {"type": "overloaded_error", "message": "Loading model"}
        server.begin(FakeDoor("abc"), byte_text())
        assert (await http.get("/health")).json() == {"status": "ok"}
        assert (await http.post(CHAT, json=HI)).status_code == 200


@pytest.mark.parametrize(("exact", "told"), [(True, ""), (False, " (exact_concurrency: false)")])
async def test_the_line_that_it_serves_says_what_is_not_promised(
    caplog: pytest.LogCaptureFixture, exact: bool, told: str
) -> None:
    caplog.set_level(logging.INFO, served.logger.name)
    async with loading() as (server, http):
        await http.get("/health")
        door = FakeDoor()
        door.facts = replace(door.facts, exact=exact)
        server.begin(door, byte_text())
        assert caplog.messages == [f"serving toy{told} at {str(http.base_url).rstrip('/')}"]


async def test_keys_and_origins_count_then_too() -> None:
    async with loading(api_key=("k",), cors_origins="*") as (_, http):
        assert (await http.post(CHAT, json=HI)).status_code == 401
        assert (await http.get("/health")).status_code == 503
        answer = await http.post(CHAT, json=HI, headers={"x-api-key": "k", "origin": "https://page.example"})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (503, "*")


async def never(path: Path, settings: EngineSettings) -> tuple[ProcessDoor, ModelText]:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_start(monkeypatch: pytest.MonkeyPatch, sign: signal.Signals) -> None:
    monkeypatch.setattr(served, "_start", never)
    listener = listen("127.0.0.1", 0)
    host, port = listener.getsockname()
    running = asyncio.create_task(
        served._serve(Path("model.gguf"), EngineSettings(), ServerSettings(drain_seconds=600), listener)
    )
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}") as http:
        assert (await http.get("/health")).status_code == 503
    os.kill(os.getpid(), sign)
    assert await running == 0


async def test_a_start_that_fails_ends_the_server() -> None:
    listener = listen("127.0.0.1", 0)
    with pytest.raises(BadFile):
        await served._serve(Path("nothing.gguf"), EngineSettings(), ServerSettings(), listener)
    assert listener.fileno() == -1
