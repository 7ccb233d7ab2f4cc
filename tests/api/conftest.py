"""Clients of an application over a fake door: in the same process, and over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest

from parkway.api.app import create_app
from parkway.api.server import Server, listen
from parkway.config import EngineSettings, ServerSettings
from parkway.text import ModelText
from tests.api.fake import FakeDoor, byte_text

Connect = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]
"""Takes a door, a text side if it shall not be `byte_text()`, and fields of the server's settings."""


@pytest.fixture
def within() -> Connect:
    """A client that calls the application without a socket; it gets a stream only when that is complete."""

    @asynccontextmanager
    async def connect(
        door: FakeDoor, text: ModelText | None = None, **settings: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        app = create_app(door, text or byte_text(), EngineSettings(), ServerSettings(alias="nick", **settings))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://toy") as client:
            yield client
        door.close()

    return connect


@pytest.fixture
def live() -> Connect:
    """A client of a server on a socket of its own."""

    @asynccontextmanager
    async def connect(
        door: FakeDoor, text: ModelText | None = None, **settings: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        listener = listen("127.0.0.1", 0)
        host, port = listener.getsockname()
        server = Server(EngineSettings(), ServerSettings(**settings))
        server.begin(door, text or byte_text())
        serving = asyncio.create_task(server.serve([listener]))
        async with httpx.AsyncClient(base_url=f"http://{host}:{port}") as client:
            yield client
        server.should_exit = True
        await serving
        door.close()

    return connect
