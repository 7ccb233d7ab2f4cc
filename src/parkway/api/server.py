"""`parkway serve`: a socket, an engine process and uvicorn between them, from start-up to the last answer."""

import asyncio
import errno
import gc
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from parkway.api import request_log
from parkway.api.app import create_app, loading_app
from parkway.api.serving import Serving
from parkway.api.sleeping import SleepingDoor
from parkway.api.trace import traced
from parkway.config import EngineSettings, ServerSettings
from parkway.engine.door import Door
from parkway.engine.process_door import ProcessDoor
from parkway.errors import BadSetting
from parkway.logs import written
from parkway.text import ModelText

logger = logging.getLogger(__name__)

_KEEP_ALIVE_SECONDS = 65
"""Longer than clients keep idle connections (5 to 60 s), so that none is closed under a request."""
_LAST_WRITES_SECONDS = 5
"""How long a client may take to read its last bytes once everything has been answered."""


def serve(path: Path, engine_settings: EngineSettings, server_settings: ServerSettings) -> int:
    """Serves until a signal or the engine's death. Returns the exit code: 0 after SIGTERM. Raises StartError."""
    with (
        logged(engine_settings),
        listen(server_settings.host, server_settings.port) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_serve(path, engine_settings, server_settings, listener))


@contextmanager
def logged(settings: EngineSettings) -> Iterator[None]:
    """What a server says until the block ends goes to stderr: that it serves, and what the settings ask for."""
    logger.setLevel(logging.INFO)
    request_log.logger.setLevel(logging.WARNING if settings.log == "warnings" else logging.INFO)
    with written(logging.WARNING, settings.log_format):
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, held from the first moment, so that a taken port costs no loading. Raises BadSetting."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address, family=family, backlog=2048)
    except socket.gaierror as error:
        raise BadSetting("--host", f"{host} is not an address ({error.strerror})") from error
    except OSError as error:
        why = (
            "is taken" if error.errno == errno.EADDRINUSE else f"can't be listened on: {os.strerror(error.errno or 0)}"
        )
        raise BadSetting("--port", f"{host}:{port} {why}") from error


async def _serve(path: Path, engine: EngineSettings, settings: ServerSettings, listener: socket.socket) -> int:
    with traced(settings.trace, path, engine) as watch:
        server = Server(engine, settings)
        serving = asyncio.create_task(server.serve([listener]))
        loading = asyncio.create_task(_start(path, engine))
        await asyncio.wait((serving, loading), return_when=asyncio.FIRST_COMPLETED)
        try:
            if loading.done():
                door, text = loading.result()
                sleeper = SleepingDoor(
                    door, partial(ProcessDoor.start, path, engine), settings.sleep_idle_seconds, watch
                )
                await _serve_with(server, serving, sleeper, text)
        finally:
            loading.cancel()
            server.should_exit = True
            await asyncio.gather(loading, return_exceptions=True)
            await serving
    return server.exit_code


async def _serve_with(server: "Server", serving: "asyncio.Task[None]", door: SleepingDoor, text: ModelText) -> None:
    """Until the server ends. Raises BadSetting."""
    dying = asyncio.create_task(server.end_with(door.died))
    try:
        server.begin(door, text)
        gc.collect()
        gc.freeze()  # else a full collection would walk the vocabulary too, and hold every stream up meanwhile
        await asyncio.wait((serving,))
    finally:
        dying.cancel()
        door.close()
        await door.gone()


async def _start(path: Path, settings: EngineSettings) -> tuple[ProcessDoor, ModelText]:
    """Both halves at the same time; if one fails, the other is put away."""
    starting = asyncio.create_task(ProcessDoor.start(path, settings))
    try:
        text = await asyncio.to_thread(ModelText.from_path, path)
    except BaseException:
        starting.cancel()
        for door in await asyncio.gather(starting, return_exceptions=True):
            if isinstance(door, ProcessDoor):
                door.close()
                await door.gone()
        raise
    return await starting, text


class Server(uvicorn.Server):
    """uvicorn, except that it serves before there is a model, a signal drains first, a second one exits at once, and
    the engine's death ends it all."""

    def __init__(self, engine_settings: EngineSettings, settings: ServerSettings) -> None:
        self._front = _Front(loading_app(settings))
        super().__init__(
            uvicorn.Config(
                self._front,
                interface="asgi3",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_LAST_WRITES_SECONDS,
            )
        )
        self.exit_code = 0
        self._loop = asyncio.get_running_loop()
        self._engine_settings = engine_settings
        self._settings = settings
        self._listeners: list[socket.socket] = []
        self._serving: Serving | None = None
        self._draining: asyncio.Task[None] | None = None
        self._signalled = False

    def begin(self, door: Door, text: ModelText) -> None:
        """From now on it serves this model. Raises BadSetting."""
        app = create_app(door, text, self._engine_settings, self._settings)
        self._serving = app.state.serving
        self._front.app = app
        self._tell()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listeners = sockets or []
        self._tell()

    def _tell(self) -> None:
        """Once it listens and has a model."""
        if self._serving is None:
            return
        exact = "" if self._serving.door.facts.exact else " (exact_concurrency: false)"
        for listener in self._listeners:
            host, port = listener.getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            logger.info("serving %s%s at %s", self._serving.model_name, exact, url)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._signalled:
            os._exit(128 + sig)  # the engine process ends with its lifeline
        self._signalled = True
        self._loop.call_soon_threadsafe(self._begin_drain)

    async def end_with(self, died: asyncio.Future[str]) -> None:
        """Ends the server with exit code 1 when the engine has died; its open requests have got their error."""
        logger.error("%s", await died)
        self.exit_code = 1
        if self._serving is not None:
            self._serving.draining = True
        self.should_exit = True

    def _begin_drain(self) -> None:
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        if self._serving is not None:
            await self._serving.drain(self._settings.drain_seconds)
        self.should_exit = True


class _Front:
    """The application that answers, which is another one once there is a model."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)
