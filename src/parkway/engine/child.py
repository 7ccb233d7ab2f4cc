"""The engine process: `python -m parkway.engine.child FOLDER MODULE:FUNCTION`. Knows nothing about HTTP or text.

Its standard input is its lifeline: when the parent closes it or dies, the process ends at once, whatever it is doing.
"""

import importlib
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import zmq

from parkway.engine import wire
from parkway.engine.events import Event, run
from parkway.errors import StartError


class _SocketInbox:
    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket

    def take(self) -> list[Event]:
        events = []
        while wire.has_message(self._socket):
            events.append(wire.decode_event(self._socket.recv()))
        return events

    def wait(self) -> list[Event]:
        return [wire.decode_event(self._socket.recv()), *self.take()]


def main(folder: str, factory: str) -> None:
    # A signal to the whole group (Ctrl-C, a supervisor's stop) is the parent's to answer: it may want to drain first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    lifeline = threading.Thread(target=_end_with_parent, args=(Path(folder),), daemon=True)
    lifeline.start()
    socket = wire.open_socket()
    socket.bind(wire.address(Path(folder)))
    start = wire.decode_start(socket.recv())
    module, _, function = factory.partition(":")
    try:
        engine = getattr(importlib.import_module(module), function)(Path(start.path), start.settings)
    except StartError as error:
        socket.send(wire.encode(wire.Failed(str(error))))
        lifeline.join()  # the parent hangs up when it has read the sentence
    socket.send(wire.encode(wire.Ready(engine.facts)))
    run(engine, _SocketInbox(socket), lambda report: socket.send(wire.encode(report)))


def _end_with_parent(folder: Path) -> None:
    os.read(0, 1)
    with suppress(OSError):  # a parent that still lives removes the folder itself
        (folder / wire.SOCKET_NAME).unlink(missing_ok=True)
        folder.rmdir()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
