"""Engines in real processes that sleep and wake: the same answers, nothing left behind, killed at any time."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from parkway.api.sleeping import SleepingDoor
from parkway.config import EngineSettings
from parkway.engine.door import Door
from parkway.engine.process_door import ProcessDoor
from parkway.request import Output, Request
from tests.api.parked import until
from tests.engine.toy import FACTORY, expected, joined, make_request

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the sockets' folders are made; the child finds the toy through PYTHONPATH."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@asynccontextmanager
async def toys(*names: str) -> AsyncIterator[SleepingDoor]:
    """The first engine is called names[0], the next names[1] …"""
    left = list(names)

    async def start() -> ProcessDoor:
        return await ProcessDoor.start(Path(left.pop(0)), EngineSettings(parallel=4), FACTORY)

    door = SleepingDoor(await start(), start, -1.0, lambda view: None)
    try:
        yield door
    finally:
        door.close()
        await door.gone()


async def ask(door: Door, request: Request) -> list[Output]:
    queue: asyncio.Queue[Output] = asyncio.Queue()
    door.submit(request, queue.put_nowait)
    outputs = [await queue.get()]
    while outputs[-1].finish_reason is None:
        outputs.append(await queue.get())
    return outputs


def children() -> list[psutil.Process]:
    processes: list[psutil.Process] = psutil.Process().children()
    return processes


async def test_the_answers_are_the_same_after_a_sleep(sockets: Path) -> None:
    requests = [make_request(i, 30, max_tokens=60, logprobs=0) for i in range(8)]
    async with toys("model", "model") as door:
        before = await asyncio.gather(*[ask(door, request) for request in requests])
        door.sleep_when_idle()
        await door.gone()
        assert (door.sleeping, children(), list(sockets.iterdir())) == (True, [], [])
        after = await asyncio.gather(*[ask(door, request) for request in requests])
        assert not door.sleeping
    assert [joined(each) for each in before] == [joined(each) for each in after]
    assert [joined(each) for each in after] == [expected(request, 512) for request in requests]
    assert (children(), list(sockets.iterdir())) == ([], [])


async def test_killed_while_it_wakes() -> None:
    async with toys("model", "hang") as door:
        door.sleep_when_idle()
        await door.gone()
        asking = [asyncio.create_task(ask(door, make_request(i))) for i in range(3)]
        await until(children)
        children()[0].kill()
        sentence = await door.died
        assert sentence == (
            "the engine could not be started again: the engine process was killed by SIGKILL before it was up"
        )
        assert [(await each)[-1].error for each in asking] == [sentence] * 3
        assert children() == []


async def test_killed_after_it_woke() -> None:
    async with toys("model", "slow") as door:
        door.sleep_when_idle()
        asking = asyncio.create_task(ask(door, make_request(1, ignore_eos=True)))
        await until(lambda: not door.sleeping)
        children()[0].kill()
        assert await door.died == "the engine process was killed by SIGKILL"
        assert (await asking)[-1].finish_reason == "error"


async def test_asleep_there_is_nothing_to_kill_and_no_death_to_tell() -> None:
    async with toys("model", "model") as door:
        (child,) = children()
        door.sleep_when_idle()
        await door.gone()
        assert not child.is_running()
        await asyncio.sleep(0.05)
        assert not door.died.done()
        assert (await ask(door, make_request(1, max_tokens=3)))[-1].finish_reason in ("stop", "length")


async def test_closed_while_it_wakes(sockets: Path) -> None:
    async with toys("model", "hang") as door:
        door.sleep_when_idle()
        await door.gone()
        asking = asyncio.create_task(ask(door, make_request(1)))
        await until(children)
    assert (await asking)[-1].error == "the engine has been closed"
    await until(lambda: not children())
    await until(lambda: not list(sockets.iterdir()))
