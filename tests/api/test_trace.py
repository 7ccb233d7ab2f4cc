"""Traces: what is in the file, that a server's can be drawn, and what happens when it can't be written."""

import asyncio
import json
import logging
import tempfile
import threading
from dataclasses import asdict
from io import BytesIO
from pathlib import Path

import pytest

from parkway.api import trace
from parkway.api.server import serve
from parkway.config import EngineSettings, ServerSettings
from parkway.engine.process_door import ProcessDoor
from parkway.errors import BadSetting
from parkway.fingerprint import VERSION
from parkway.report import SlotView, View
from parkway.request import Output
from simulate.draw import draw, size
from simulate.timeline import read
from tests.engine.toy import FACTORY, make_request

VIEWS = [View([SlotView(0, number, "decode", 3, 4, 3, 1)], at=float(number)) for number in range(5)]
FULL = Path("/dev/full")
"""Can be opened, and refuses every byte as a full disk does."""


def test_a_line_for_the_settings_and_one_for_each_view(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    settings = EngineSettings(parallel=1)
    with trace.traced(str(path), Path("models/toy.gguf"), settings) as watch:
        for view in VIEWS:
            watch(view)
    first, *moments = map(json.loads, path.read_text().splitlines())
    assert first == {"parkway": VERSION, "model": "toy.gguf", "settings": asdict(settings)}
    assert [moment["at"] for moment in moments] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert moments[3]["slots"] == [
        {
            "id": 0,
            "request_id": 3,
            "state": "decode",
            "prompt_tokens": 3,
            "tokens": 4,
            "computed": 3,
            "pages": 1,
            "parks": 0,
            "recomputes": 0,
            "cached": 0,
        }
    ]


def test_without_a_file_nothing_is_kept() -> None:
    threads = threading.active_count()
    with trace.traced("", Path("toy"), EngineSettings()) as watch:
        watch(VIEWS[0])
        assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (str(FULL), "No space left on device"),
        ("/nowhere/trace", "No such file or directory"),
        ("/", "Is a directory"),
    ],
)
def test_a_file_that_cannot_be_written_stops_the_start(path: str, why: str) -> None:
    """Before the model is looked at, which is not there either."""
    with pytest.raises(BadSetting, match=f"--trace: {path} can't be written: {why}"):
        serve(Path("nothing.gguf"), EngineSettings(), ServerSettings(port=0, trace=path))


class FullAfter(BytesIO):
    """A disk that is full after so many lines."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.left = lines

    def write(self, line: object) -> int:
        if not self.left:
            raise OSError(28, "")
        self.left -= 1
        return 0


def test_a_disk_that_fills_up_ends_the_trace_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    disk = FullAfter(2)
    over = trace.Trace(disk)
    for view in VIEWS:
        over.add(view)
    over.close()
    for view in VIEWS:
        over.add(view)
    assert caplog.record_tuples == [
        ("parkway.api.trace", logging.WARNING, "the trace ends here: No space left on device")
    ]
    assert disk.closed


class Stuck(BytesIO):
    """A disk that takes no byte before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def write(self, line: object) -> int:
        self.go.wait(30)
        return 0


def test_a_disk_that_hangs_holds_nobody_up(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_WAITING", 2)
    monkeypatch.setattr(trace, "CLOSE_SECONDS", 0.01)
    disk = Stuck()
    slow = trace.Trace(disk)
    for view in VIEWS:
        slow.add(view)
    slow.close()
    assert [message for _, _, message in caplog.record_tuples] == ["the trace ends here: the disk is too slow"]
    disk.go.set()


async def test_a_served_engines_trace_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path, settings = tmp_path / "trace.jsonl", EngineSettings(parallel=2)
    with trace.traced(str(path), Path("toy"), settings) as watch:
        door = await ProcessDoor.start(Path("model"), settings, FACTORY)
        door.watch = watch
        try:
            outputs: asyncio.Queue[Output] = asyncio.Queue()
            for number in range(3):
                door.submit(make_request(number, 20, max_tokens=30), outputs.put_nowait)
            ended = 0
            while ended < 3:
                ended += (await outputs.get()).finish_reason is not None
        finally:
            door.close()
            await door.gone()
    timeline = read(path)
    assert [{stretch.request_id for stretch in slot} for slot in timeline.slots] != [set(), set()]
    assert {0, 1, 2} == {stretch.request_id for slot in timeline.slots for stretch in slot}
    assert timeline.most_tokens <= 50
    assert draw(timeline).size == size(2)
