"""Streams that wait: keepalives while a chat is parked, pings in silence, and what becomes of those nobody reads."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from parkway.api import pulse
from parkway.request import Output
from tests.api.conftest import Connect
from tests.api.parked import ASKED, CHAT, COMPLETIONS, Frames, frames, paced, park, resume, step, until


async def test_keepalives_from_preempted_to_resumed(live: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "KEEPALIVE_SECONDS", 0.01)
    async with live(door := paced()) as http, http.stream("POST", COMPLETIONS, json=ASKED[COMPLETIONS]) as answer:
        told = Frames(answer)
        door.notify("preempted")
        assert await told.take(4) == [": preempted", *[": preempt-keepalive"] * 3]
        door.notify("resumed")
        assert set(await told.until(": resumed")) <= {": preempt-keepalive"}
        await asyncio.sleep(0.03)  # room for one too many
        door.step(tokens=9)
        rest = await told.until("data: [DONE]")
        assert not [frame for frame in rest if frame.startswith(":")]


async def test_keepalives_while_any_chat_of_the_request_is_out(live: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "KEEPALIVE_SECONDS", 0.01)
    body = ASKED[COMPLETIONS] | {"prompt": ["Hi", "Ho"]}
    async with live(door := paced()) as http, http.stream("POST", COMPLETIONS, json=body) as answer:
        told = Frames(answer)
        for act in (park(0), park(1), resume(0)):
            act(door)
        assert await told.take(4) == [": preempted", ": preempted 1", ": resumed", ": preempt-keepalive"]
        door.notify("resumed", 1)
        assert set(await told.until(": resumed 1")) <= {": preempt-keepalive"}
        await asyncio.sleep(0.03)
        door.step(tokens=9)
        assert not [frame for frame in await told.until("data: [DONE]") if frame.startswith(":")]


async def test_no_keepalive_for_a_chat_that_has_ended_while_it_was_out(
    live: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "KEEPALIVE_SECONDS", 0.01)
    body = ASKED[COMPLETIONS] | {"prompt": ["Hi", "Ho"]}
    async with live(door := paced()) as http, http.stream("POST", COMPLETIONS, json=body) as answer:
        told = Frames(answer)
        door.notify("preempted", 1)
        assert await told.take(2) == [": preempted 1", ": preempt-keepalive"]
        door.open.pop(1).sink(Output(1, finish_reason="length"))
        while (frame := (await told.take(1))[0]).startswith(":"):
            pass
        assert json.loads(frame.removeprefix("data: "))["choices"][0]["index"] == 1
        await asyncio.sleep(0.03)
        door.step(tokens=9)
        assert not [frame for frame in await told.until("data: [DONE]") if frame.startswith(":")]


async def test_what_is_written_breaks_the_silence(live: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[pulse.Pulse] = []
    monkeypatch.setattr(pulse.Pulse, "wrote", lambda each: written.append(each))
    body = ASKED[COMPLETIONS] | {"sse_ping_interval": 3600}
    async with live(door := paced()) as http, http.stream("POST", COMPLETIONS, json=body) as answer:
        told = Frames(answer)
        for count, act in enumerate([step, park(), resume(), step], 1):
            act(door)
            await told.take(1)
            assert len(written) == count


async def test_an_ordinary_ping_in_silence_and_none_instead_of_a_notice(live: Connect) -> None:
    async with (
        live(door := paced(), notices="off", sse_ping_interval=0.01) as http,
        http.stream("POST", COMPLETIONS, json=ASKED[COMPLETIONS]) as answer,
    ):
        told = Frames(answer)
        assert await told.take(2) == [":", ":"]
        door.notify("preempted")
        assert await told.take(3) == [":", ":", ":"]
        door.notify("resumed")
        door.step(tokens=9)
        assert {frame[:6] for frame in await told.until("data: [DONE]")} <= {":", "data: "}


async def test_a_request_may_go_without_pings(live: Connect) -> None:
    body = ASKED[COMPLETIONS] | {"sse_ping_interval": -1}
    async with (
        live(door := paced(), sse_ping_interval=0.001) as http,
        http.stream("POST", COMPLETIONS, json=body) as answer,
    ):
        await asyncio.sleep(0.02)
        door.step(tokens=9)
        assert not [frame for frame in await Frames(answer).until("data: [DONE]") if frame.startswith(":")]


@pytest.mark.parametrize("streamed", [False, True])
async def test_who_goes_away_while_parked_is_cancelled(
    live: Connect, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "KEEPALIVE_SECONDS", 0.001)
    async with live(door := paced()) as http:
        asking = asyncio.create_task(_read(http, ASKED[CHAT] | {"stream": streamed}))
        await until(lambda: door.open)
        door.step()
        door.notify("preempted")
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await until(lambda: not door.open)
        assert door.cancelled == [0]
        assert 'finished_reason="abort",model_name="toy"} 1.0' in (await http.get("/metrics")).text


async def _read(http: httpx.AsyncClient, body: dict[str, Any]) -> None:
    async with http.stream("POST", CHAT, json=body) as answer:
        await answer.aread()


async def test_an_engine_that_dies_while_a_chat_is_parked_ends_the_stream(live: Connect) -> None:
    async with live(door := paced()) as http, http.stream("POST", COMPLETIONS, json=ASKED[COMPLETIONS]) as answer:
        door.notify("preempted")
        door.die("the engine process was killed")
        notice, failure = frames((await answer.aread()).decode())
    assert notice == ": preempted"
    assert json.loads(failure.removeprefix("data: "))["error"]["message"] == "the engine process was killed"
