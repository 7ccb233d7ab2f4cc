"""Lines on stderr: their two forms, and readers that are slow, gone, or full."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from parkway import logs
from parkway.logs import Json, Lines, own_fields

TEXT = logging.Formatter("parkway: %(message)s")


@contextmanager
def logging_to(descriptor: int, formatter: logging.Formatter) -> Iterator[logging.Logger]:
    logger = logging.Logger("parkway.test")
    lines = Lines(descriptor, formatter)
    logger.addHandler(lines)
    yield logger
    lines.close()


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        with suppress(OSError):
            os.close(descriptor)


def test_sentences() -> None:
    with pipe() as (reader, writer):
        with logging_to(writer, TEXT) as logger:
            logger.info("%d chats", 3)
            logger.warning("half \ud800")
        assert os.read(reader, 1000).decode() == "parkway: 3 chats\nparkway: half ?\n"


def test_json_objects() -> None:
    with pipe() as (reader, writer):
        with logging_to(writer, Json()) as logger:
            logger.info("%d chats", 3, extra=own_fields({"event": "request", "status": 200}))
            try:
                raise ValueError("planted")
            except ValueError:
                logger.exception("it\nbroke")
        first, second = map(json.loads, os.read(reader, 10_000).splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {"level": "info", "logger": "parkway.test", "message": "3 chats", "event": "request", "status": 200}
    assert second["message"] == "it\nbroke"
    assert second["exception"].endswith("ValueError: planted")


def test_who_logs_does_not_wait_for_a_reader_and_what_is_lost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_WAITING", 10)
    with pipe() as (reader, writer):
        with logging_to(writer, TEXT) as logger:
            for number in range(100):
                logger.info("%d %s", number, "x" * 10_000)
            received = bytearray()
            drained = threading.Thread(target=lambda: received.extend(_until(reader, b"were lost")))
            drained.start()
            drained.join(30)
        *told, last = received.decode().splitlines()
        lost = int(last.split()[1])
        assert last == f"parkway: {lost} lines were lost"
        assert lost > 0
        assert len(told) + lost == 100


def _until(reader: int, end: bytes) -> bytearray:
    received = bytearray()
    while end not in received:
        received += os.read(reader, 1 << 16)
    return received


def test_a_reader_that_never_reads_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(logs, "MOST_WAITING", 1)
    with pipe() as (reader, writer):
        with logging_to(writer, TEXT) as logger:
            for _ in range(3):
                logger.info("x" * 1_000_000)
        os.close(reader)  # lets the thread go


@pytest.mark.parametrize("fault", ["gone", "closed", "full"])
def test_a_stderr_that_takes_nothing_is_no_error(fault: str) -> None:
    with pipe() as (reader, writer):
        descriptor = writer
        if fault == "gone":
            os.close(reader)
        elif fault == "closed":
            os.close(writer)
        else:
            descriptor = os.open("/dev/full", os.O_WRONLY)
        with logging_to(descriptor, TEXT) as logger:
            logger.info("lost")
            logger.info("and this")
        if fault == "full":
            os.close(descriptor)


def test_what_cant_be_formatted_loses_its_line_only() -> None:
    with pipe() as (reader, writer):
        with logging_to(writer, TEXT) as logger:
            logger.info("%d", "no number")
            logger.info("next")
        assert os.read(reader, 1000) == b"parkway: next\nparkway: 1 lines were lost\n"


def test_no_socket_gets_the_number_of_a_stderr_that_was_closed() -> None:
    program = (
        "import os, socket\nfrom parkway.logs import written\n"
        "with written(30, 'text'):\n"
        "    print(socket.socket().fileno() > 2, os.fstat(2).st_rdev == os.stat(os.devnull).st_rdev)"
    )
    command = ["bash", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True True\n"


def test_levels(capfd: pytest.CaptureFixture[str]) -> None:
    quiet, loud = logging.getLogger("parkway.quiet"), logging.getLogger("parkway.loud")
    loud.setLevel(logging.INFO)
    with logs.written(logging.WARNING, "json"):
        for logger in (quiet, loud):
            logger.info("x")
            logger.warning("y")
    assert [json.loads(line)["level"] for line in capfd.readouterr().err.splitlines()] == ["warning", "info", "warning"]
