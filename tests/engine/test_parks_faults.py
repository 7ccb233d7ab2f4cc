"""What may go wrong around a park: copies that die, an engine closed or a chat cancelled beside them, parks at once."""

import asyncio
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from msgspec import structs

from parkway.config import AUTOMATIC, EngineSettings
from parkway.engine.build import host_bytes
from parkway.engine.door import ThreadDoor
from parkway.engine.engine import Engine
from parkway.engine.events import Arrive, Event, run
from parkway.engine.process_door import ProcessDoor
from parkway.errors import EngineDied
from parkway.plan.copies import Copy
from parkway.plan.limits import Knobs
from parkway.report import Report
from parkway.request import Output, Request
from tests.engine.toy import ToyCopies, ToyRunner, expected, joined, make_request, make_toy

ROOT = Path(__file__).parents[2]
DYING = "tests.engine.test_parks_faults:build_dying"
TOLD = "a copy of KV pages failed"
AHEAD = pytest.mark.parametrize("ahead", [0, 1])
EVERY = Knobs(park_every=3, forget=True)


class Dying(ToyCopies):
    """Copies of which the `fatal`-th kills the device when it is asked for."""

    fatal = 1

    def landed(self) -> list[Copy]:
        if len([each for each in self._open if each[0].id + 1 >= self.fatal]):
            raise RuntimeError(TOLD)
        return super().landed()


class DyingRunner(ToyRunner):
    def __init__(self, fatal: int) -> None:
        super().__init__(ahead=1)
        self._fatal = fatal

    def copies(self, most_bytes: int, *, beside: bool) -> ToyCopies:
        copies = Dying(self, most_bytes)
        copies.fatal = self._fatal
        return copies


def dying(fatal: int) -> Engine:
    """The first copy is a park; the fourth is a restore."""
    return make_toy(DyingRunner(fatal), host_pages=64, knobs=EVERY)


def build_dying(path: Path, settings: EngineSettings) -> Engine:
    return dying(int(path.name))


def long(request_id: int, length: int = 20, tokens: int = 100) -> Request:
    return make_request(request_id, length, max_tokens=tokens, ignore_eos=True, logprobs=0)


def steps(engine: Engine) -> Iterator[Report | None]:
    """All that are left."""
    while not engine.idle:
        yield engine.step()


def drained(engine: Engine) -> dict[int, list[Output]]:
    """What is still told, by request, without the notices."""
    outputs: dict[int, list[Output]] = defaultdict(list)
    for report in steps(engine):
        for output in report.outputs if report else ():
            if not output.notice:
                outputs[output.request_id].append(output)
    return outputs


def gathered(outputs: dict[int, list[Output]], report: Report | None) -> None:
    for output in report.outputs if report else ():
        if not output.notice:
            outputs[output.request_id].append(output)


@pytest.mark.parametrize("fatal", [1, 4], ids=["park", "restore"])
def test_a_copy_that_dies_is_told_to_every_client_of_a_thread(fatal: int, caplog: pytest.LogCaptureFixture) -> None:
    door = ThreadDoor(dying(fatal))
    ends = {index: threading.Event() for index in range(3)}
    last: dict[int, Output] = {}

    def hear(output: Output) -> None:
        last[output.request_id] = output
        if output.finish_reason:
            ends[output.request_id].set()

    for index in ends:
        door.submit(long(index), hear)
    assert all(end.wait(30) for end in ends.values())
    assert {output.error for output in last.values()} == {f"the engine died: {TOLD}"}
    assert TOLD in caplog.text
    with pytest.raises(EngineDied, match=TOLD):
        door.submit(long(9), hear)
    door.close()


@pytest.mark.parametrize("fatal", [1, 4], ids=["park", "restore"])
async def test_a_copy_that_dies_ends_the_process_and_every_client_is_told(
    fatal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    door = await ProcessDoor.start(Path(str(fatal)), EngineSettings(), DYING)
    outputs: asyncio.Queue[Output] = asyncio.Queue()
    for index in range(3):
        door.submit(long(index), outputs.put_nowait)
    sentence = await door.died
    told = [outputs.get_nowait() for _ in range(outputs.qsize())]
    assert sentence == "the engine process ended with exit code 1"
    assert [output.error for output in told if output.finish_reason] == [sentence] * 3
    assert TOLD in capfd.readouterr().err
    door.close()
    await door.gone()


@AHEAD
@pytest.mark.parametrize("host_pages", [64, 0])
def test_a_chat_may_be_parked_behind_any_of_its_first_chunks(ahead: int, host_pages: int) -> None:
    for chunks in range(1, 9):
        engine = make_toy(ToyRunner(ahead=ahead), host_pages=host_pages, chunk_tokens=7, knobs=Knobs(forget=True))
        engine.arrive(long(0, length=40, tokens=5))
        outputs: dict[int, list[Output]] = defaultdict(list)
        for _ in range(chunks):
            gathered(outputs, engine.step())
        room = engine._planner._room
        room._park(room._chats.running[0], "no room")
        for report in steps(engine):
            gathered(outputs, report)
        assert joined(outputs[0]) == expected(long(0, length=40, tokens=5), 512)
        assert outputs[0][-1].preempt.parks == engine.snapshot.resumes == 1
        assert outputs[0][-1].preempt.recomputes == (0 if host_pages else 1)


@AHEAD
def test_a_chat_may_be_parked_behind_every_chunk_that_it_ever_has(ahead: int) -> None:
    engine = make_toy(ToyRunner(ahead=ahead), host_pages=64, knobs=Knobs(park_every=1, forget=True))
    engine.arrive(long(0))
    outputs = drained(engine)[0]
    assert joined(outputs) == expected(long(0), 512)
    assert outputs[-1].preempt.parks == 99  # behind the last token there is nothing to park


@AHEAD
@pytest.mark.parametrize("forget", [True, False])
def test_a_prompt_goes_on_beside_its_twin_that_is_cancelled_at_any_moment(ahead: int, forget: bool) -> None:
    """Two chats have the same pages; one goes in whatever state it is, the other, and a third that finds what is left,
    get the answer that each gets alone."""
    twins = [structs.replace(long(0, length=150, tokens=70), id=number, seed=number) for number in range(3)]
    states = set()
    for moment in range(60):
        knobs = Knobs(park_every=5, forget=forget)
        engine = make_toy(ToyRunner(ahead=ahead), pages=6, n_ctx=384, host_pages=16, knobs=knobs)
        for twin in twins[:2]:
            engine.arrive(twin)
        outputs: dict[int, list[Output]] = defaultdict(list)
        for _ in range(moment):
            gathered(outputs, engine.step())
        states |= {slot.state for slot in engine._planner.slots() if slot.request_id == 0}
        engine.cancel(0)
        engine.arrive(twins[2])
        for report in steps(engine):
            gathered(outputs, report)
        assert [joined(outputs[twin.id]) for twin in twins[1:]] == [expected(twin, 384) for twin in twins[1:]]
        assert engine.snapshot.pages_used == 0
    assert states >= {"decode", "preempting", "restoring"}


@AHEAD
def test_the_last_report_of_a_chat_that_is_cancelled_beside_its_copy_shows_nothing_left(ahead: int) -> None:
    """A copy keeps its pages, and the host its memory, until it lands: behind the last thing that a client is told."""
    for moment in range(1, 40):
        engine = make_toy(ToyRunner(ahead=ahead), host_pages=64, knobs=EVERY)
        engine.arrive(long(0))
        for _ in range(moment):
            engine.step()
        engine.cancel(0)
        last = [report for report in steps(engine) if report][-1]
        left = last.snapshot
        assert (left.pages_used, left.host_bytes, left.running, left.waiting, left.parked) == (0, 0, 0, 0, 0)
        assert last.view
        assert {slot.state for slot in last.view.slots} == {"idle"}


def test_a_client_is_told_of_a_park_before_anybody_waits_for_its_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    def wait(copies: ToyCopies) -> None:
        heard.append("wait")
        copies.advance()

    monkeypatch.setattr(ToyCopies, "wait", wait)
    engine = make_toy(host_pages=64, knobs=EVERY)
    engine.arrive(long(0, tokens=5))
    for report in steps(engine):
        heard += [output.notice.state for output in report.outputs if output.notice] if report else []
    assert heard[0] == "preempted"
    assert "wait" in heard[1 : heard.index("resumed")]


class Closing:
    """An inbox that brings a request, and the end as soon as a copy is under way."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._events: list[Event] = [Arrive(long(0))]

    def take(self) -> list[Event] | None:
        events, self._events = self._events, []
        return None if self._engine._planner.copying else events

    def wait(self, seconds: float | None = None) -> list[Event] | None:
        return self.take()


@AHEAD
def test_an_engine_that_is_closed_waits_for_what_uses_the_pool(ahead: int) -> None:
    runner = ToyRunner(ahead=ahead)
    engine = make_toy(runner, host_pages=64, knobs=EVERY)
    run(engine, Closing(engine), lambda report: None)
    assert engine._planner.copying
    assert engine._parks._copies.drain() == []
    assert runner.landed == runner.launched


@pytest.mark.parametrize(("mib", "most"), [(-1, 64), (0, 0), (1, 64), (2**31 - 1, 64)])
def test_there_is_never_more_host_memory_than_could_be_parked(mib: int, most: int) -> None:
    assert host_bytes(EngineSettings(preempt_ram=mib), ToyRunner()) == most


@pytest.mark.parametrize(("machine_bytes", "most"), [(2**40, 16), (64, 16), (63, 15), (40, 10)])
def test_host_memory_is_as_large_as_the_pool_and_a_quarter_of_the_machines_at_most(
    machine_bytes: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless somebody says otherwise; without copies there is none."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=machine_bytes))
    assert EngineSettings().preempt_ram == AUTOMATIC
    assert host_bytes(EngineSettings(), ToyRunner()) == most
    assert host_bytes(EngineSettings(preempt="recompute"), ToyRunner()) == 0
