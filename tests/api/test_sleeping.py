"""An engine that is ended when nobody asks and started again by the next request: over fake doors, and over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from parkway.api.sleeping import SleepingDoor
from parkway.api.totals import COUNTERS, HISTOGRAMS
from parkway.errors import EngineDied, StartError
from parkway.report import BUCKETS, Histogram, SlotView, Snapshot, View
from parkway.request import Output, Request, SamplingParams, Vocabulary
from tests.api.conftest import Connect
from tests.api.fake import FINGERPRINT, FakeDoor
from tests.api.parked import Frames, park, resume, until

NEVER = -1.0


class Beds:
    """The engines of a door, one after the other. They start when `gate` is set."""

    def __init__(self, **fake: Any) -> None:
        self.doors: list[FakeDoor] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: StartError | None = None
        self.fingerprint = FINGERPRINT
        self.starts = 0
        self._fake = fake

    async def start(self) -> FakeDoor:
        self.starts += 1
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        door = FakeDoor(**self._fake)
        door.facts = msgspec.structs.replace(door.facts, fingerprint=self.fingerprint)
        self.doors.append(door)
        return door

    @property
    def latest(self) -> FakeDoor:
        return self.doors[-1]


Seen = list[Output]


@asynccontextmanager
async def bed(idle_seconds: float = NEVER, **fake: Any) -> AsyncIterator[tuple[SleepingDoor, Beds]]:
    beds = Beds(**fake)
    door = SleepingDoor(await beds.start(), beds.start, idle_seconds, lambda view: None)
    try:
        yield door, beds
    finally:
        door.close()
        assert all(each.closed for each in beds.doors)


def ask(door: SleepingDoor, prompt: list[int] | None = None, max_tokens: int | None = None) -> tuple[int, Seen]:
    seen: Seen = []
    sampling = SamplingParams(max_tokens=max_tokens)
    request = Request(id=door.next_id(), prompt=prompt or [1], sampling=sampling, seed=0)
    door.submit(request, seen.append)
    return request.id, seen


def ended(seen: Seen) -> Callable[[], bool]:
    return lambda: bool(seen) and seen[-1].finish_reason is not None


async def test_asked_to_sleep_it_does_so_at_once_if_nobody_is_here() -> None:
    async with bed() as (door, beds):
        asleep = [door.sleeping]
        door.sleep_when_idle()
        assert [*asleep, door.sleeping] == [False, True]
        assert beds.latest.closed
        assert beds.starts == 1


async def test_the_next_request_wakes_it_and_gets_the_whole_answer() -> None:
    async with bed(answer="abc") as (door, beds):
        door.sleep_when_idle()
        _, seen = ask(door, [5, 6])
        await until(ended(seen))
        assert not door.sleeping
        assert beds.starts == 2
        assert [request.prompt for request in beds.latest.asked] == [[5, 6]]
        assert [i for output in seen for i in output.token_ids][:3] == [*b"abc"]


async def test_requests_that_come_while_it_wakes_wait_and_start_it_once() -> None:
    async with bed() as (door, beds):
        door.sleep_when_idle()
        beds.gate.clear()
        asked = [ask(door, [i]) for i in range(3)]
        await until(lambda: beds.starts == 2)
        assert door.sleeping
        assert not any(seen for _, seen in asked)
        door.cancel(asked[1][0])
        beds.gate.set()
        await until(lambda: ended(asked[0][1])() and ended(asked[2][1])())
        assert [request.prompt for request in beds.latest.asked] == [[0], [2]]
        assert asked[1][1] == []
        assert beds.starts == 2


async def test_open_requests_are_waited_for_parked_ones_too() -> None:
    async with bed(paced=True) as (door, beds):
        first, seen = ask(door)
        park(first)(beds.latest)
        door.sleep_when_idle()
        assert not door.sleeping
        second, later = ask(door)  # comes in time
        beds.latest.step()
        door.cancel(second)
        await asyncio.sleep(0)
        assert not door.sleeping
        resume(first)(beds.latest)
        while beds.latest.open:
            beds.latest.step()
        assert not beds.latest.closed  # not within its own call
        await until(lambda: door.sleeping)
        assert seen[-1].finish_reason == "stop"
        assert later[-1].finish_reason is None


async def test_the_wish_to_sleep_is_over_once_it_has_slept() -> None:
    async with bed() as (door, _):
        door.sleep_when_idle()
        door.sleep_when_idle()
        _, seen = ask(door)
        await until(ended(seen))
        await asyncio.sleep(0.01)
        assert not door.sleeping


async def test_asked_to_sleep_while_it_wakes_it_does_so_after_the_answers() -> None:
    async with bed() as (door, beds):
        door.sleep_when_idle()
        beds.gate.clear()
        _, seen = ask(door)
        door.sleep_when_idle()
        beds.gate.set()
        await until(ended(seen))
        await until(lambda: door.sleeping)


async def test_all_who_woke_it_have_left_before_it_is_up() -> None:
    async with bed(idle_seconds=0.0) as (door, beds):
        await until(lambda: door.sleeping)
        beds.gate.clear()
        request_id, seen = ask(door)
        door.cancel(request_id)
        beds.gate.set()
        await until(lambda: beds.starts == 2 and len(beds.doors) == 2)
        await until(lambda: door.sleeping and beds.latest.closed)
        assert seen == []


async def test_it_sleeps_by_itself_when_nobody_has_asked_for_a_while() -> None:
    async with bed(idle_seconds=0.01, paced=True) as (door, beds):
        await until(lambda: door.sleeping)
        _, seen = ask(door)
        await until(lambda: beds.starts == 2 and beds.latest.open)
        await asyncio.sleep(0.03)
        assert not door.sleeping  # somebody is here
        while beds.latest.open:
            beds.latest.step()
        await until(lambda: door.sleeping)
        assert ended(seen)()


async def test_every_kind_of_end_lets_it_sleep() -> None:
    async with bed(paced=True) as (door, beds):
        asked = [ask(door, max_tokens=limit) for limit in (1, None, None)]
        door.sleep_when_idle()
        beds.latest.step()
        beds.latest.open.pop(asked[1][0]).sink(Output(asked[1][0], finish_reason="error", error="x"))
        door.cancel(asked[2][0])
        await until(lambda: door.sleeping)
        assert [seen[-1].finish_reason for _, seen in asked] == ["length", "error", None]


async def test_without_a_limit_it_never_does() -> None:
    async with bed() as (door, _):
        _, seen = ask(door)
        await until(ended(seen))
        await asyncio.sleep(0.02)
        assert not door.sleeping


async def test_ids_go_on_and_the_vocabulary_is_taught_again() -> None:
    vocabulary = Vocabulary([b"a"])
    async with bed() as (door, beds):
        before = door.next_id()
        door.teach(lambda: vocabulary)
        door.sleep_when_idle()
        door.teach(lambda: vocabulary)
        assert door.next_id() > before
        _, seen = ask(door)
        await until(ended(seen))
        assert [each.taught for each in beds.doors] == [vocabulary, vocabulary]


async def test_what_is_told_of_an_engine_that_sleeps() -> None:
    async with bed() as (door, beds):
        facts = door.facts
        beds.latest.view = View([SlotView(0, 1, "decode")])
        assert door.view.slots
        door.sleep_when_idle()
        assert door.facts == facts
        assert door.view == View()
        now = door.snapshot
        assert (now.running, now.waiting, now.pages_used, now.host_bytes) == (0, 0, 0, 0)
        assert (now.answer_tokens, now.parks) == (6, 8)


def measured(count: int) -> Histogram:
    return Histogram([count, *[0] * len(BUCKETS)], count / 4)


async def test_what_was_counted_goes_on_over_sleeps() -> None:
    """A counter that goes down means a restart of the server to those who watch it."""
    async with bed() as (door, beds):
        for times in (1, 2):
            beds.latest.snapshot = replace(beds.latest.snapshot, steps=20, finished={"stop": 2, f"{times}": 1})
            beds.latest.view = View([SlotView(0)], measured(1), measured(2), measured(3), measured(4))
            for _ in range(2):  # awake, then asleep
                now, view = door.snapshot, door.view
                counted = (now.prompt_tokens, now.answer_tokens, now.cached_tokens, now.parks, now.resumes)
                assert counted == (5 * times, 6 * times, 3 * times, 8 * times, 9 * times)
                assert (now.recomputes, now.steps) == (10 * times, 20 * times)
                assert now.finished == {"stop": 2 * times, "1": 1} | ({"2": 1} if times == 2 else {})
                histograms = (view.park, view.restore, view.wait, view.gap)
                assert histograms == tuple(measured(n * times) for n in (1, 2, 3, 4))
                door.sleep_when_idle()
            _, seen = ask(door)
            await until(ended(seen))


def test_every_number_either_counts_or_tells_how_it_is_now() -> None:
    now = {"running", "waiting", "pages_used", "pages_total", "parked", "parked_bytes", "host_bytes"}
    assert {*Snapshot.__struct_fields__} == {*COUNTERS, "finished"} | now
    assert {*View.__struct_fields__} == {*HISTOGRAMS, "slots", "at"}


async def test_views_of_every_engine_are_watched() -> None:
    watched: list[View] = []
    beds = Beds()
    door = SleepingDoor(await beds.start(), beds.start, NEVER, watched.append)
    door.sleep_when_idle()
    _, seen = ask(door)
    await until(ended(seen))
    for each in beds.doors:
        each.watch(View(at=1.0))
    assert len(watched) == 2
    door.close()


async def test_an_engine_that_dies_awake() -> None:
    async with bed(paced=True) as (door, beds):
        _, seen = ask(door)
        beds.latest.die("it died")
        assert (await door.died, seen[-1].error) == ("it died", "it died")
        with pytest.raises(EngineDied, match="it died"):
            ask(door)


async def test_one_that_cannot_be_started_again() -> None:
    async with bed() as (door, beds):
        door.sleep_when_idle()
        beds.failure = StartError("the file is gone")
        _, seen = ask(door)
        sentence = "the engine could not be started again: the file is gone"
        assert await door.died == sentence
        assert (seen[-1].finish_reason, seen[-1].error) == ("error", sentence)
        with pytest.raises(EngineDied, match="the file is gone"):
            ask(door)


async def test_another_model_in_its_place() -> None:
    async with bed() as (door, beds):
        door.sleep_when_idle()
        beds.fingerprint = "another"
        _, seen = ask(door)
        assert await door.died == "the model was changed while the engine slept"
        assert (seen[-1].finish_reason, beds.latest.closed) == ("error", True)


async def test_closed_while_it_wakes() -> None:
    beds = Beds()
    door = SleepingDoor(await beds.start(), beds.start, NEVER, lambda view: None)
    door.sleep_when_idle()
    beds.gate.clear()
    _, seen = ask(door)
    await until(lambda: beds.starts == 2)
    door.close()
    assert seen[-1].finish_reason == "error"
    with pytest.raises(EngineDied):
        ask(door)
    beds.gate.set()
    await asyncio.sleep(0.01)
    assert len(beds.doors) == 1
    assert not door.died.done()


async def test_over_http(live: Connect) -> None:
    beds = Beds(answer="abc", paced=True)
    door = SleepingDoor(await beds.start(), beds.start, NEVER, lambda view: None)

    async def told(http: httpx.AsyncClient) -> tuple[bool, int]:
        return (await http.get("/props")).json()["is_sleeping"], (await http.get("/health")).status_code

    body = {"prompt": "Hi", "stream": True}
    async with live(door) as http:
        async with http.stream("POST", "/completion", json=body) as answer:
            beds.latest.step()
            reading = Frames(answer)  # dropping it would hang up
            await reading.take(1)
            asked = await http.post("/sleep")
            assert (asked.status_code, asked.json()) == (202, {"is_sleeping": False})
            assert await told(http) == (False, 200)
        await until(lambda: door.sleeping)
        assert await told(http) == (True, 200)
        assert (await http.post("/tokenize", json={"content": "a"})).json() == {"tokens": [97]}
        assert [slot["state"] for slot in (await http.get("/slots")).json()] == ["idle"] * 4
        asked = await http.post("/sleep")
        assert (asked.status_code, asked.json()) == (200, {"is_sleeping": True})
        assert beds.starts == 1
        asking = asyncio.create_task(http.post("/completion", json={"prompt": "Hi"}))
        await until(lambda: beds.starts == 2 and beds.latest.open)
        while beds.latest.open:
            beds.latest.step()
        assert (await asking).json()["content"] == "abc"
        assert await told(http) == (False, 200)
