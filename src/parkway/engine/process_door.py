"""The door to an engine in a process of its own, for an event loop. Knows nothing about what is asked."""

import asyncio
import itertools
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import zmq

from parkway.config import EngineSettings
from parkway.engine import wire
from parkway.engine.door import Sink, Sinks
from parkway.engine.events import Arrive, Cancel
from parkway.errors import StartError
from parkway.request import Facts, Request, Snapshot

BUILD_ENGINE = "parkway.engine.build:build_engine"
CLOSE_SECONDS = 1.0


class ProcessDoor:
    """An engine in a child process. Everything here, sinks too, runs on the event loop that started it.

    `died` gets a sentence when the process ends unasked, after every open request has got an error.
    """

    facts: Facts

    def __init__(self, factory: str) -> None:
        self.snapshot = Snapshot()
        self._loop = asyncio.get_running_loop()
        self.died: asyncio.Future[str] = self._loop.create_future()
        self._answer: asyncio.Future[Facts] = self._loop.create_future()
        self._up = False
        self._sinks = Sinks()
        self._ids = itertools.count()
        with ExitStack() as undo:
            folder = Path(undo.enter_context(_private_folder()))
            self._socket = wire.open_socket()
            undo.callback(self._socket.context.destroy, linger=0)
            self._socket.connect(wire.address(folder))
            self._lifeline, theirs = socket.socketpair()
            with theirs:
                self._process = _spawn(folder, factory, theirs)
            undo.callback(self._reap)
            undo.callback(self._lifeline.close)
            for descriptor, callback in ((self._lifeline.fileno(), self._mourn), (self._socket.fileno(), self._drain)):
                self._loop.add_reader(descriptor, callback)
                undo.callback(self._loop.remove_reader, descriptor)
            self._undo = undo.pop_all()

    @classmethod
    async def start(cls, path: Path, settings: EngineSettings, factory: str = BUILD_ENGINE) -> "ProcessDoor":
        """Start the process and wait until its engine is up. `factory` builds it there. Raises StartError."""
        try:
            door = cls(factory)
        except (OSError, zmq.ZMQError) as error:
            raise StartError(f"the engine process can't be started: {error}") from error
        try:
            door._send(wire.encode(wire.Start(str(path), settings)))
            door.facts = await door._answer
        except BaseException:
            door.close()
            raise
        return door

    def next_id(self) -> int:
        return next(self._ids)

    def submit(self, request: Request, sink: Sink) -> None:
        frame = wire.encode(Arrive(request))
        self._sinks.add(request.id, sink)
        self._send(frame)

    def cancel(self, request_id: int) -> None:
        if self._sinks.drop(request_id):
            self._send(wire.encode(Cancel(request_id)))

    def close(self) -> None:
        """End the process, by force after a second, and remove the socket's folder. Open requests get an error."""
        self._sinks.end("the engine has been closed")
        self._undo.close()

    def _send(self, frame: bytes) -> None:
        self._socket.send(frame)
        # ZeroMQ's descriptor tells only of changes, and sending may have swallowed one.
        if wire.has_message(self._socket):
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        while not self._socket.closed and wire.has_message(self._socket):
            frame = self._socket.recv()
            if self._up:
                report = wire.decode_report(frame)
                self.snapshot = report.snapshot
                self._sinks.deliver(report.outputs)
            else:
                self._begin(wire.decode_answer(frame))

    def _begin(self, answer: wire.Ready | wire.Failed) -> None:
        self._up = True
        if self._answer.done():  # nobody waits for it any more
            return
        if isinstance(answer, wire.Ready):
            self._answer.set_result(answer.facts)
        else:
            self._answer.set_exception(StartError(answer.sentence))

    def _mourn(self) -> None:
        self._loop.remove_reader(self._lifeline.fileno())
        self._drain()
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


def _private_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="parkway-", ignore_cleanup_errors=True)  # mode 0700


def _spawn(folder: Path, factory: str, lifeline: socket.socket) -> "subprocess.Popen[bytes]":
    # -P keeps the current folder off the module path; a process group of its own keeps Ctrl-C away from start-up.
    command = [sys.executable, "-P", "-m", "parkway.engine.child", str(folder), factory]
    return subprocess.Popen(command, stdin=lifeline.fileno(), process_group=0)


def _ending(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
