"""The engine process: `python -m parkway.engine.child FOLDER MODULE:FUNCTION`. Knows nothing about HTTP or text.

Its standard input is its lifeline: when the parent closes it or dies, the process ends at once, whatever it is doing.
"""

import gc
import importlib
import logging
import os
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from parkway.engine import wire
from parkway.engine.events import Event, run
from parkway.errors import StartError
from parkway.logs import written


class _SocketInbox:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def take(self) -> list[Event] | None:
        events = []
        while self._poll.poll(0):
            message = wire.receive(self._connection)
            if not message:
                return None
            events.append(wire.decode_event(message))
        return events

    def wait(self, seconds: float | None = None) -> list[Event] | None:
        self._poll.poll(None if seconds is None else 1000 * seconds)
        return self.take()


def main(folder: str, factory: str) -> None:
    # A signal to the whole group (Ctrl-C, a supervisor's stop) is the parent's to answer: it may want to drain first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    lifeline = threading.Thread(target=_end_with_parent, args=(Path(folder),), daemon=True)
    lifeline.start()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(Path(folder) / wire.SOCKET_NAME))
    except (ConnectionRefusedError, FileNotFoundError):
        lifeline.join()  # the parent has given up the start

    def send(message: msgspec.Struct) -> None:
        try:
            connection.sendall(wire.frame(message))  # waits where the parent doesn't read
        except ConnectionError:
            lifeline.join()  # the parent has gone, and so will this process

    message = wire.receive(connection)
    if not message:
        lifeline.join()
    start = wire.decode_start(message)
    level = logging.INFO if start.settings.log == "parks" else logging.WARNING
    with written(level, start.settings.log_format):
        module, _, function = factory.partition(":")
        if start.settings.log != "warnings":
            logging.getLogger(module).setLevel(logging.INFO)  # it tells how large everything is
        try:
            engine = getattr(importlib.import_module(module), function)(Path(start.path), start.settings)
        except StartError as error:
            send(wire.Failed(str(error)))
            lifeline.join()  # the parent hangs up when it has read the sentence
        gc.collect()
        gc.freeze()  # else a full collection would walk all that was loaded and hold every stream up
        send(wire.Ready(engine.facts, engine.snapshot))
        run(engine, _SocketInbox(connection), send)
    lifeline.join()


def _end_with_parent(folder: Path) -> None:
    os.read(0, 1)
    with suppress(OSError):  # a parent that still lives removes the folder itself
        (folder / wire.SOCKET_NAME).unlink(missing_ok=True)
        folder.rmdir()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
