"""A trace: what slots looked like over time, as lines of JSON in a file. Knows no engine and never holds one up.

The first line names the model and the settings; each of the others is a moment, the newest last.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

import msgspec

from parkway.config import EngineSettings
from parkway.errors import BadSetting
from parkway.fingerprint import VERSION
from parkway.report import View

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000
"""Moments that wait for a slow disk; the trace ends at one more."""
CLOSE_SECONDS = 1.0

encode = msgspec.json.Encoder().encode


def header(model: str, settings: dict[str, Any]) -> bytes:
    """The first line. `settings` are plain values by name."""
    return encode({"parkway": VERSION, "model": model, "settings": settings}) + b"\n"


def moment(view: View) -> bytes:
    """One line: `at`, in seconds of the engine's clock, and every slot with its fields by name."""
    slots = [msgspec.structs.asdict(slot) for slot in view.slots]
    return encode({"at": view.at, "slots": slots}) + b"\n"


@contextmanager
def traced(path: str, model: Path, settings: EngineSettings) -> Iterator[Callable[[View], object]]:
    """Who takes every view until the block ends: a trace into a new file, or over an old one; nobody where `path` is
    empty. Raises BadSetting."""
    if not path:
        yield lambda view: None
        return
    trace = Trace(_begun(path, header(model.name, asdict(settings))))
    try:
        yield trace.add
    finally:
        trace.close()


def _begun(path: str, first: bytes) -> BinaryIO:
    try:
        file = open(path, "wb")  # noqa: SIM115 (the trace closes it)
        try:
            file.write(first)
            file.flush()
        except OSError:
            with suppress(OSError):
                file.close()
            raise
    except OSError as error:
        raise BadSetting("--trace", f"{path} can't be written: {os.strerror(error.errno or 0)}") from error
    return file


class Trace:
    """Writes views in a thread of its own, each as soon as it can. The first failure is logged and ends it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._views: SimpleQueue[View | None] = SimpleQueue()
        self._over = False
        self._thread = threading.Thread(target=self._write, name="parkway-trace", daemon=True)
        self._thread.start()

    def add(self, view: View) -> None:
        """Never waits."""
        if self._over:
            return
        if self._views.qsize() >= MOST_WAITING:
            self._fail("the disk is too slow")
        self._views.put(view)

    def close(self) -> None:
        """Writes what is left, unless that takes more than a second."""
        self._views.put(None)
        self._thread.join(CLOSE_SECONDS)

    def _write(self) -> None:
        try:
            with self._file as file:
                while (view := self._views.get()) and not self._over:
                    file.write(moment(view))
                    file.flush()
        except OSError as error:
            self._fail(os.strerror(error.errno or 0))

    def _fail(self, why: str) -> None:
        if not self._over:
            self._over = True
            logger.warning("the trace ends here: %s", why)
