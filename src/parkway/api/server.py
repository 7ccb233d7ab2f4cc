"""`parkway serve`: a socket, an engine process and uvicorn between them, from start-up to the last answer."""

import asyncio
import errno
import os
import socket
import sys
from pathlib import Path
from types import FrameType

import uvicorn
import uvloop

from parkway.api.app import create_app
from parkway.api.serving import Serving
from parkway.api.trace import traced
from parkway.config import EngineSettings, ServerSettings
from parkway.engine.door import Door
from parkway.engine.process_door import ProcessDoor
from parkway.errors import BadSetting
from parkway.text import ModelText

_KEEP_ALIVE_SECONDS = 65
"""Longer than clients keep idle connections (5 to 60 s), so that none is closed under a request."""
_LAST_WRITES_SECONDS = 5
"""How long a client may take to read its last bytes once everything has been answered."""


def serve(path: Path, engine_settings: EngineSettings, server_settings: ServerSettings) -> int:
    """Serves until a signal or the engine's death. Returns the exit code: 0 after SIGTERM. Raises StartError."""
    with (
        listen(server_settings.host, server_settings.port) as listener,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_serve(path, engine_settings, server_settings, listener))


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
        door, text = await _start(path, engine)
        door.watch = watch
        try:
            server = Server(door, text, engine, settings)
            dying = asyncio.create_task(server.end_with(door.died))
            await server.serve([listener])
            dying.cancel()
            return server.exit_code
        finally:
            door.close()


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
        raise
    return await starting, text


class Server(uvicorn.Server):
    """uvicorn, except that a signal drains first, a second one exits at once, and the engine's death ends it all."""

    def __init__(self, door: Door, text: ModelText, engine_settings: EngineSettings, settings: ServerSettings) -> None:
        app = create_app(door, text, engine_settings, settings)
        super().__init__(
            uvicorn.Config(
                app,
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
        self._serving: Serving = app.state.serving
        self._drain_seconds = settings.drain_seconds
        self._draining: asyncio.Task[None] | None = None
        self._signalled = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            exact = "" if self._serving.door.facts.exact else " (exact_concurrency: false)"
            _say(f"serving {self._serving.model_name}{exact} at {url}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._signalled:
            os._exit(128 + sig)  # the engine process ends with its lifeline
        self._signalled = True
        self._loop.call_soon_threadsafe(self._begin_drain)

    async def end_with(self, died: asyncio.Future[str]) -> None:
        """Ends the server with exit code 1 when the engine has died; its open requests have got their error."""
        _say(await died)
        self.exit_code = 1
        self._serving.draining = True
        self.should_exit = True

    def _begin_drain(self) -> None:
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        await self._serving.drain(self._drain_seconds)
        self.should_exit = True


def _say(sentence: str) -> None:
    print(f"parkway: {sentence}", file=sys.stderr, flush=True)
