"""The door to an engine in a process of its own, for an event loop. Knows nothing about what is asked."""

import asyncio
import itertools
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from parkway.config import EngineSettings
from parkway.engine import wire
from parkway.engine.door import Sink, Sinks
from parkway.engine.events import Arrive, Cancel, Teach
from parkway.errors import StartError
from parkway.report import Facts, Snapshot, View
from parkway.request import Request, Vocabulary

BUILD_ENGINE = "parkway.engine.build:build_engine"
CLOSE_SECONDS = 1.0


class ProcessDoor:
    """An engine in a child process. Everything here, sinks too, runs on the event loop that started it.

    `died` gets a sentence when the process ends unasked, after every open request has got an error.
    """

    facts: Facts

    def __init__(self, factory: str) -> None:
        self.snapshot = Snapshot()
        self.view = View()
        self.watch: Callable[[View], object] = lambda view: None
        """Gets every view. It must return soon and must not raise."""
        self._loop = asyncio.get_running_loop()
        self.died: asyncio.Future[str] = self._loop.create_future()
        self._answer: asyncio.Future[Facts] = self._loop.create_future()
        self._channel = _Channel(self._take, self._mourn)
        self._up = self._taught = False
        self._sinks = Sinks()
        self._ids = itertools.count()
        with ExitStack() as undo:
            folder = Path(undo.enter_context(_private_folder()))
            self._listener = undo.enter_context(socket.socket(socket.AF_UNIX))
            self._listener.bind(str(folder / wire.SOCKET_NAME))
            self._listener.listen(1)
            self._lifeline, theirs = socket.socketpair()
            with theirs:
                self._process = _spawn(folder, factory, theirs)
            self._loop.add_reader(self._lifeline, self._hang_up)
            self._left = undo.pop_all()
        self._leaving: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, path: Path, settings: EngineSettings, factory: str = BUILD_ENGINE) -> "ProcessDoor":
        """Start the process and wait until its engine is up. `factory` builds it there. Raises StartError."""
        try:
            door = cls(factory)
        except OSError as error:
            raise StartError(f"the engine process can't be started: {error}") from error
        try:
            door.facts = await door._begin(wire.Start(str(path), settings))
        except BaseException:
            door.close()
            await door.gone()
            raise
        return door

    def next_id(self) -> int:
        return next(self._ids)

    def teach(self, vocabulary: Callable[[], Vocabulary]) -> None:
        if not self._taught:
            self._taught = True
            self._channel.send(wire.frame(Teach(vocabulary())))

    def submit(self, request: Request, sink: Sink) -> None:
        frame = wire.frame(Arrive(request))
        self._sinks.add(request.id, sink)
        self._channel.send(frame)

    def cancel(self, request_id: int) -> None:
        if self._sinks.drop(request_id):
            self._channel.send(wire.frame(Cancel(request_id)))

    def close(self) -> None:
        """Begin to end the process, by force after a second. Open requests get an error."""
        if self._leaving is not None:
            return
        self._sinks.end("the engine has been closed")
        self._channel.close()
        self._loop.remove_reader(self._lifeline)
        self._lifeline.close()
        self._leaving = self._loop.create_task(self._leave())

    async def gone(self) -> None:
        """Waits, after `close`, until there is neither the process nor the socket's folder."""
        if self._leaving is not None:
            await asyncio.wait((self._leaving,))

    async def _leave(self) -> None:
        try:
            await asyncio.to_thread(self._reap)
        finally:
            self._left.close()

    async def _begin(self, start: wire.Start) -> Facts:
        self._channel.send(wire.frame(start))
        server = await self._loop.create_unix_server(lambda: self._channel, sock=self._listener)
        try:
            return await self._answer
        finally:
            server.close()

    def _take(self, message: bytes) -> None:
        if self._up:
            report = wire.decode_report(message)
            self.snapshot = report.snapshot
            if report.view:
                self.view = report.view
                self.watch(report.view)
            self._sinks.deliver(report.outputs)
        else:
            self._come_up(wire.decode_answer(message))

    def _come_up(self, answer: wire.Ready | wire.Failed) -> None:
        self._up = True
        if self._answer.done():  # nobody waits for it any more
            return
        if isinstance(answer, wire.Ready):
            self.snapshot = answer.snapshot
            self._answer.set_result(answer.facts)
        else:
            self._answer.set_exception(StartError(answer.sentence))

    def _hang_up(self) -> None:
        self._loop.remove_reader(self._lifeline)
        if not self._channel.connected:  # else it tells when the last message has been read
            self._mourn()

    def _mourn(self) -> None:
        sentence = f"the engine process {_ending(self._reap())}"
        if not self._answer.done():
            self._answer.set_exception(StartError(f"{sentence} before it was up"))
        self._sinks.end(sentence)
        if not self.died.done():
            self.died.set_result(sentence)

    def _reap(self) -> int:
        try:
            return self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class _Channel(asyncio.Protocol):
    """The socket to the engine process. May be sent to before it is connected; calls `lost` unless it was closed."""

    def __init__(self, take: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._take = take
        self._lost = lost
        self._frames = wire.Frames()
        self._early: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def send(self, frame: bytes) -> None:
        if self._transport is None:
            self._early.append(frame)
        else:
            self._transport.write(frame)

    def close(self) -> None:
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.writelines(self._early)

    def data_received(self, received: bytes) -> None:
        for message in self._frames.split(received):
            self._take(message)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._closed:
            self._lost()


def _private_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="parkway-", ignore_cleanup_errors=True)  # mode 0700


def _spawn(folder: Path, factory: str, lifeline: socket.socket) -> "subprocess.Popen[bytes]":
    # -P keeps the current folder off the module path; a process group of its own keeps Ctrl-C away from start-up.
    command = [sys.executable, "-P", "-m", "parkway.engine.child", str(folder), factory]
    return subprocess.Popen(command, stdin=lifeline.fileno(), process_group=0)


def _ending(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
