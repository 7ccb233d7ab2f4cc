"""Parks in streams of responses: notices among events that are those of a chat that never parked."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from parkway.api import openai_responses_form, openai_responses_output, pulse
from parkway.request import Preempt
from tests.api.anthropic_chats import CALL, THOUGHT, text
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor
from tests.api.parked import Act, Frames, frames, gone_while_parked, paced, park, recomputed, resume, step, until
from tests.api.responses_chats import HI, STREAM, TOOL, URL, events

KEEPALIVE = ": preempt-keepalive"


@pytest.fixture(autouse=True)
def one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer and item has one id and one time, so that the bytes of two streams can be compared."""
    monkeypatch.setattr(openai_responses_output, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex="0" * 32)))
    monkeypatch.setattr(openai_responses_form, "time", SimpleNamespace(time=lambda: 7))


async def stream(within: Connect, door: FakeDoor, *acts: Act, **fields: Any) -> list[str]:
    """The frames of a paced door that does `acts`, then steps until the end."""
    async with within(door, text()) as http:
        asking = asyncio.create_task(http.post(URL, json=STREAM | fields))
        await until(lambda: door.open)
        for act in acts:
            act(door)
        while door.open:
            door.step()
        answer = await asking
    assert answer.status_code == 200, answer.text
    return frames(answer.text)


def without_comments(told: list[str]) -> list[str]:
    return [frame for frame in told if not frame.startswith(":")]


@pytest.mark.parametrize("answer", ["abcdefgh", THOUGHT + "plain", f"{THOUGHT}I look.\n{CALL}"])
async def test_events_are_those_of_a_chat_that_never_parked(within: Connect, answer: str) -> None:
    alone = await stream(within, paced(answer), tools=[TOOL])
    rounds = len(answer.encode()) // 4
    acts = (park(), resume(), *(step, step, step, step, park(), resume(), recomputed()) * rounds)
    parked = await stream(within, paced(answer), *acts, tools=[TOOL])
    assert parked[2:4] == [": preempted", ": resumed"]
    assert parked.count(": preempted") == rounds + 1
    assert without_comments(parked) == alone


async def test_the_record_is_within_the_response(within: Connect) -> None:
    record = {"parks": 2, "recomputes": 1, "parked_ms": 40}
    *_, last = await stream(within, paced(preempt=Preempt(2, 1, 40)), park(), resume())
    told = json.loads(last.split("data: ")[1])
    assert told.keys() == {"type", "sequence_number", "response"}
    assert told["response"]["preempt"] == record
    async with within(FakeDoor(preempt=Preempt(2, 1, 40))) as http:
        assert (await http.post(URL, json=HI)).json()["preempt"] == record


async def test_notices_as_events_beside_comments(within: Connect) -> None:
    told = await stream(within, paced(), step, park(), resume(), notices="chunks")
    at = told.index(": preempted")
    assert told[at + 2] == ": resumed"
    first, second = (json.loads(told[index].split("data: ")[1]) for index in (at + 1, at + 3))
    assert told[at + 1].startswith("event: response.in_progress\n")
    assert [each["parkway"] for each in (first, second)] == [
        {"state": "preempted", "ahead": 2, "waited_ms": 0},
        {"state": "resumed", "ahead": 0, "waited_ms": 40},
    ]
    assert first["response"]["status"] == "in_progress"
    assert first["response"]["output"][0]["content"][0]["text"] == "a"
    numbered = [json.loads(frame.split("data: ")[1])["sequence_number"] for frame in without_comments(told)]
    assert numbered == list(range(len(numbered)))


async def test_a_request_may_go_without_notices(within: Connect) -> None:
    told = await stream(within, paced(), step, park(), resume(), notices="off")
    assert told == await stream(within, paced())


async def test_a_whole_answer_has_no_notice(within: Connect) -> None:
    async with within(door := paced()) as http:
        asking = asyncio.create_task(http.post(URL, json=HI))
        await until(lambda: door.open)
        for act in (park(), resume(), step, step, step, step):
            act(door)
        assert (await asking).json()["output"][0]["content"][0]["text"] == "abc"


async def test_keepalives_from_preempted_to_resumed(live: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "KEEPALIVE_SECONDS", 0.01)
    async with live(door := paced()) as http, http.stream("POST", URL, json=STREAM) as answer:
        told = Frames(answer)
        assert [frame.split("\n")[0] for frame in await told.take(2)] == [
            "event: response.created",
            "event: response.in_progress",
        ]
        door.notify("preempted")
        assert await told.take(3) == [": preempted", KEEPALIVE, KEEPALIVE]
        door.notify("resumed")
        assert set(await told.until(": resumed")) <= {KEEPALIVE}
        door.step(tokens=9)
        assert KEEPALIVE not in await told.take(7)


async def test_a_ping_in_silence(live: Connect) -> None:
    async with (
        live(paced(), sse_ping_interval=0.01) as http,
        http.stream("POST", URL, json=STREAM | {"notices": "off"}) as answer,
    ):
        assert (await Frames(answer).take(4))[2:] == [":", ":"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_who_goes_away_while_parked_is_cancelled(live: Connect, streamed: bool) -> None:
    async with live(door := paced()) as http:
        await gone_while_parked(http, door, URL, HI | {"stream": streamed})
        assert door.cancelled == [0]


async def test_an_engine_that_dies_within_a_stream(within: Connect) -> None:
    async with within(door := paced()) as http:
        asking = asyncio.create_task(http.post(URL, json=STREAM))
        await until(lambda: door.open)
        door.step()
        door.notify("preempted")
        door.die("the engine process was killed")
        answer = await asking
    told = events("".join(f"{frame}\n\n" for frame in without_comments(frames(answer.text))))
    *begun, error, failed = told
    assert begun[-1]["type"] == "response.output_text.delta"
    sentence = {"code": "engine_died", "message": "the engine process was killed", "param": None}
    assert error == {
        "type": "error",
        "sequence_number": len(begun),
        "error": sentence | {"type": "server_error"},
        **sentence,
    }
    response = failed["response"]
    assert (failed["type"], response["status"]) == ("response.failed", "failed")
    assert response["error"] == {"code": "server_error", "message": "the engine process was killed", "param": None}
    [item] = response["output"]
    assert (item["status"], item["content"][0]["text"], response["preempt"]["parks"]) == ("incomplete", "a", 1)


async def test_an_engine_that_dies_under_a_whole_answer(within: Connect) -> None:
    async with within(door := paced()) as http:
        asking = asyncio.create_task(http.post(URL, json=HI))
        await until(lambda: door.open)
        door.die("the engine process was killed")
        answer = await asking
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "engine_died")
