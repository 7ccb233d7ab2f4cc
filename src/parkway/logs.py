"""What a process says on stderr: sentences or JSON objects, a line each, by a thread. Knows no one who says anything.

Whoever logs never waits for the reader of stderr. A closed stderr or a full disk loses lines and nothing else.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from queue import Full, Queue
from typing import Any

import msgspec

from parkway.config import LogFormat

MOST_WAITING = 10_000
"""Lines that wait for a slow reader; further ones are counted and dropped."""
CLOSE_SECONDS = 1.0
"""How long the last lines may take."""

_STDERR = 2
_OWN_FIELDS = "fields"


class Lines(logging.Handler):
    """Writes every record to a file descriptor, as a line. `close` waits for a second at most."""

    def __init__(self, descriptor: int, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._descriptor = descriptor
        self._waiting: Queue[bytes | None] = Queue(MOST_WAITING)
        self._dropped = 0
        self._writer = threading.Thread(target=self._write, name="parkway-log", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._waiting.put_nowait(self.format(record).encode("utf-8", "replace") + b"\n")
        except Full:
            self._dropped += 1
        except Exception:  # a value that has no text loses its line, not the request that it is about
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        self._dropped += 1

    def close(self) -> None:
        super().close()
        try:
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        except Full:
            return
        self._writer.join(CLOSE_SECONDS)

    def _write(self) -> None:
        told = 0
        while True:
            line = self._waiting.get()
            if line is not None:
                write_all(self._descriptor, line)
            if self._dropped > told and self._waiting.empty():
                lost, told = self._dropped - told, self._dropped
                record = logging.LogRecord(__name__, logging.WARNING, "", 0, "%d lines were lost", (lost,), None)
                write_all(self._descriptor, self.format(record).encode() + b"\n")
            if line is None:
                return


def write_all(descriptor: int, line: bytes) -> None:
    """All of it, or as much as the descriptor takes. Never raises: there is nobody to tell."""
    with suppress(OSError):
        while line:
            line = line[os.write(descriptor, line) :]


class Json(logging.Formatter):
    """`{"time", "level", "logger", "message"}`, a record's own fields, and the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= getattr(record, _OWN_FIELDS, {})
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(told).decode()


def own_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """What a logger takes as `extra`, for a record whose line in JSON shall have these fields."""
    return {_OWN_FIELDS: fields}


@contextmanager
def written(level: int, log_format: LogFormat) -> Iterator[None]:
    """What is logged until the block ends goes to stderr, from `level` on unless a logger has another."""
    _hold_stderr()
    lines = Lines(_STDERR, Json() if log_format == "json" else logging.Formatter("parkway: %(message)s"))
    root = logging.getLogger()
    root.addHandler(lines)
    before = root.level
    root.setLevel(level)
    try:
        yield
    finally:
        root.setLevel(before)
        root.removeHandler(lines)
        lines.close()


def _hold_stderr() -> None:
    """Where stderr was closed, the next file or socket would get its number, and what is written to stderr."""
    try:
        os.fstat(_STDERR)
    except OSError:
        if (null := os.open(os.devnull, os.O_WRONLY)) != _STDERR:
            os.dup2(null, _STDERR)
            os.close(null)
