"""Both doors keep the view that the engine told last, over reports that have none."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest

from parkway.config import EngineSettings
from parkway.engine.door import ThreadDoor
from parkway.engine.engine import Engine
from parkway.engine.process_door import ProcessDoor
from parkway.report import Facts, Histogram, Report, SlotView, Snapshot, View
from parkway.request import Output, Request, SamplingParams

FACTS = Facts(model="told", n_ctx=64, slots=1, vocab_size=8, fingerprint="-", weight_bytes=0, pool_bytes=0)
ASKED = Request(id=1, prompt=[1], sampling=SamplingParams(), seed=0)
FIRST = View([SlotView(0, 1, "decode", 1, 2, 1, 1)])
SECOND = View([SlotView(0)], gap=Histogram([1] * 16, 0.5))
VIEWS = [None, FIRST, None, None, SECOND, None]
KEPT = [View(), FIRST, FIRST, FIRST, SECOND, SECOND]


class Scripted:
    """Tells one report for each of these views, each with a token, from the first request on."""

    facts = FACTS
    snapshot = Snapshot()

    def __init__(self) -> None:
        self._left: Iterator[View | None] = iter(())
        self.idle = True

    def arrive(self, _: Request) -> None:
        self._left = iter(VIEWS)
        self.idle = False

    def step(self) -> Report | None:
        for view in self._left:
            return Report([Output(ASKED.id, [0])], Snapshot(), view)
        self.idle = True
        return None


def build(_: Path, __: EngineSettings) -> Scripted:
    return Scripted()


def test_of_a_thread() -> None:
    heard: SimpleQueue[View] = SimpleQueue()
    door = ThreadDoor(cast(Engine, Scripted()))
    assert door.view == View()
    door.submit(ASKED, lambda _: heard.put(door.view))
    assert [heard.get(timeout=30) for _ in VIEWS] == KEPT
    door.close()


async def test_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    heard: asyncio.Queue[View] = asyncio.Queue()
    door: Any = await ProcessDoor.start(Path("none"), EngineSettings(), f"{__name__}:build")
    assert door.view == View()
    door.submit(ASKED, lambda _: heard.put_nowait(door.view))
    assert [await heard.get() for _ in VIEWS] == KEPT
    door.close()
    await door.gone()
