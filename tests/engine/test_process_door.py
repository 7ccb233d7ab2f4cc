"""The door to an engine in a process of its own: real child processes over the toy model, killed, orphaned, refused."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from parkway.config import EngineSettings
from parkway.engine import process_door
from parkway.engine.door import Door
from parkway.engine.process_door import ProcessDoor
from parkway.errors import EngineDied, StartError
from parkway.request import Output, Request
from tests.engine.toy import FACTORY, expected, joined, make_request

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the socket's folder is made; the child finds the toy through PYTHONPATH."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@asynccontextmanager
async def toy_door(name: str = "model", parallel: int = 4) -> AsyncIterator[ProcessDoor]:
    door = await ProcessDoor.start(Path(name), EngineSettings(parallel=parallel), FACTORY)
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


def the_child() -> psutil.Process:
    (child,) = psutil.Process().children()
    return child


async def test_many_at_once_get_the_answers_of_each_alone() -> None:
    requests = [make_request(i, 30, max_tokens=60, logprobs=0, prompt_logprobs=0) for i in range(24)]
    async with toy_door() as door:
        assert (door.facts.model, door.facts.slots) == ("toy", 4)
        answers = await asyncio.gather(*[ask(door, request) for request in requests])
        assert [joined(answer) for answer in answers] == [expected(request, 512) for request in requests]
        now = door.snapshot
        assert (now.running, now.waiting, now.pages_used, sum(now.finished.values())) == (0, 0, 0, 24)


async def test_what_is_held_is_known_before_anybody_asks() -> None:
    """A GPU's engine begins with memory for parked chats."""
    async with toy_door() as door:
        assert door.snapshot.pages_total > 0


async def test_the_folder_is_the_users_alone_and_goes_with_the_door(sockets: Path) -> None:
    async with toy_door():
        (folder,) = sockets.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert all(stat.S_ISSOCK(path.stat().st_mode) for path in folder.iterdir())
        child = the_child()
    assert list(sockets.iterdir()) == []
    assert not child.is_running()


async def test_a_cancelled_request_frees_its_slot_and_its_sink_hears_no_more() -> None:
    async with toy_door("slow", parallel=1) as door:
        heard: list[Output] = []
        begun = asyncio.Event()
        request = make_request(1, ignore_eos=True)

        def sink(output: Output) -> None:
            heard.append(output)
            begun.set()

        door.submit(request, sink)
        await begun.wait()
        door.cancel(1)
        told = len(heard)
        other = make_request(2, max_tokens=3, ignore_eos=True)
        assert joined(await ask(door, other)) == expected(other, 512)
        assert len(heard) == told
        assert door.snapshot.finished == {"cancelled": 1, "length": 1}


async def test_a_killed_engine_ends_every_request_and_is_reported() -> None:
    async with toy_door("slow") as door:
        answers = [asyncio.create_task(ask(door, make_request(i, ignore_eos=True))) for i in range(10)]
        await asyncio.sleep(0.1)
        the_child().kill()
        sentence = await door.died
        assert sentence == "the engine process was killed by SIGKILL"
        for answer in answers:
            last = (await answer)[-1]
            assert (last.finish_reason, last.error) == ("error", sentence)
        with pytest.raises(EngineDied, match="SIGKILL"):
            door.submit(make_request(99), lambda output: None)


async def test_an_exception_in_a_step_ends_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    async with toy_door("broken") as door:
        last = (await ask(door, make_request(1, ignore_eos=True)))[-1]
        assert last.finish_reason == "error"
        assert await door.died == "the engine process ended with exit code 1"
    assert "planted" in capfd.readouterr().err


async def test_close_ends_what_is_open() -> None:
    async with toy_door("slow") as door:
        answer = asyncio.create_task(ask(door, make_request(1, ignore_eos=True)))
        await asyncio.sleep(0.05)
    assert (await answer)[-1].error == "the engine has been closed"
    assert not door.died.done()
    with pytest.raises(EngineDied):
        door.submit(make_request(2), lambda output: None)
    door.close()


async def test_nobody_waits_for_a_process_that_does_not_end(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_door, "CLOSE_SECONDS", 0.05)
    async with toy_door() as door:
        child = the_child()
        child.suspend()
        door.close()
        assert child.is_running()
        await door.gone()
        assert not child.is_running()
        assert list(sockets.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("missing", "missing: there is no such file"),
        ("crash", "the engine process ended with exit code 7 before it was up"),
    ],
)
async def test_what_keeps_an_engine_from_starting_comes_back_as_its_sentence(
    name: str, sentence: str, sockets: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StartError) as caught:
        await ProcessDoor.start(Path(name), EngineSettings(), FACTORY)
    assert str(caught.value) == sentence
    assert capfd.readouterr().err == ""
    assert list(sockets.iterdir()) == []
    assert psutil.Process().children() == []


async def test_a_socket_that_cannot_be_made_is_a_start_error(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = sockets / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(StartError, match="path too long"):
        await ProcessDoor.start(Path("model"), EngineSettings(), FACTORY)
    assert list(long.iterdir()) == []
    assert psutil.Process().children() == []


async def test_giving_up_on_a_start_leaves_nothing(sockets: Path) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ProcessDoor.start(Path("hang"), EngineSettings(), FACTORY), 0.5)
    assert list(sockets.iterdir()) == []
    assert psutil.Process().children() == []


async def test_a_process_that_comes_up_after_its_start_was_given_up_says_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    start = asyncio.create_task(ProcessDoor.start(Path("model"), EngineSettings(), FACTORY))
    await asyncio.sleep(0.01)  # the process has begun, and nobody listens when it knocks
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert psutil.Process().children() == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signals_to_the_group_are_the_parents_to_answer(number: int) -> None:
    async with toy_door("slow") as door:
        request = make_request(1, max_tokens=20, ignore_eos=True)
        answer = asyncio.create_task(ask(door, request))
        the_child().send_signal(number)
        assert joined(await answer) == expected(request, 512)


@pytest.mark.parametrize("name", ["slow", "hang"])
def test_the_engine_ends_with_its_parent(name: str, sockets: Path) -> None:
    """Killed while it serves or while it loads, the parent leaves neither a process nor a folder."""
    program = f"""
        import asyncio, tempfile
        from pathlib import Path
        from parkway.config import EngineSettings
        from parkway.engine.process_door import ProcessDoor
        from tests.engine.toy import FACTORY, make_request

        async def main():
            tempfile.tempdir = {str(sockets)!r}
            door = asyncio.create_task(ProcessDoor.start(Path({name!r}), EngineSettings(), FACTORY))
            await asyncio.sleep(0.5)
            if {name!r} == "slow":
                (await door).submit(make_request(1, ignore_eos=True), lambda output: None)
            print("begun", flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"begun\n"
        (child,) = psutil.Process(parent.pid).children()
        os.kill(parent.pid, signal.SIGKILL)
    child.wait(30)
    assert list(sockets.iterdir()) == []
