"""Traces read back and drawn: of the simulator, with gaps, broken ones."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from parkway.api import trace
from parkway.report import SlotView, View
from simulate.draw import COLOURS, LANE, LEFT, RIGHT, TOP, WIDTH, draw, size
from simulate.timeline import Timeline, read

HEADER = trace.header("toy", {"parallel": 2})
VIEWS = [
    View([SlotView(0, 7, "decode", 10, 100), SlotView(1)], at=50.0),
    View([SlotView(0, 7, "decode", 10, 200), SlotView(1, 8, "prefill", 50, 50)], at=60.0),
    View([SlotView(0, 7, "preempted", 10, 200), SlotView(1, 8, "decode", 50, 51)], at=70.0),
    View([SlotView(0), SlotView(1)], at=80.0),
]
FILE = HEADER + b"".join(map(trace.moment, VIEWS))


def timeline_of(path: Path, text: bytes) -> Timeline:
    file = path / "trace.jsonl"
    file.write_bytes(text)
    return read(file)


def test_stretches_of_a_slot(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, FILE)
    assert (timeline.header.model, timeline.header.settings) == ("toy", {"parallel": 2})
    assert (timeline.seconds, timeline.most_tokens) == (30.0, 200)
    told = [[(s.request_id, s.state, s.start, s.end, s.points) for s in slot] for slot in timeline.slots]
    assert told == [
        [(7, "decode", 0.0, 20.0, [(0.0, 100), (10.0, 200)]), (7, "preempted", 20.0, 30.0, [(20.0, 200)])],
        [(8, "prefill", 10.0, 20.0, [(10.0, 50)]), (8, "decode", 20.0, 30.0, [(20.0, 51)])],
    ]


def test_the_picture_has_its_size_and_its_colours(tmp_path: Path) -> None:
    image = draw(timeline_of(tmp_path, FILE))
    assert image.size == size(2) == (WIDTH, image.height)
    floor, third = TOP + LANE, (WIDTH - LEFT - RIGHT) // 3
    at = [image.getpixel((LEFT + third * number + third // 2, floor - LANE // 4)) for number in range(3)]
    assert at == [rgb("decode"), rgb("decode"), rgb("preempted")]
    above = [image.getpixel((LEFT + third * number + third // 2, floor - LANE * 3 // 4)) for number in range(3)]
    assert above[0] not in (rgb("decode"), (255, 255, 255))
    assert above[1:] == at[1:]


def rgb(state: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(COLOURS[state][1:]))


def test_an_unfinished_last_line_is_left_out(tmp_path: Path) -> None:
    assert timeline_of(tmp_path, FILE[:-9]).seconds == 20.0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "is no trace"),
        (b"hello\n", "line 1: "),
        (HEADER + b"{}\n", "line 2: .*missing required field `at`"),
        (FILE + b"what\n", "line 6: "),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, text: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        timeline_of(tmp_path, text)


def test_a_trace_of_nothing_is_a_picture_of_nothing(tmp_path: Path) -> None:
    assert draw(timeline_of(tmp_path, HEADER)).size == size(0)


def command(*words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "simulate", *map(str, words)], capture_output=True, text=True)


def test_a_run_is_traced_and_drawn_by_commands(tmp_path: Path) -> None:
    traced, picture = tmp_path / "run.jsonl", tmp_path / "run.png"
    scene = ("--lengths", "uniform", "--chats", 3, "--pool", 2048, "--device", "h200")
    ran = command("run", traced, *scene)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert command("run", tmp_path / "again.jsonl", *scene).stdout == ran.stdout
    assert (tmp_path / "again.jsonl").read_bytes() == traced.read_bytes()
    assert command("draw", traced, picture).returncode == 0
    with Image.open(picture) as image:
        assert (image.format, image.size) == ("PNG", size(3))
    missing = command("draw", tmp_path / "nothing", picture)
    assert missing.returncode == 2
    assert missing.stderr.startswith("simulate: ")
    assert missing.stderr.count("\n") == 1
