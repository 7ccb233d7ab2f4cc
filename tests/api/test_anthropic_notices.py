"""Parks in Anthropic's streams: notices among events that are those of a chat that never parked, and pings."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from parkway.api import anthropic_form, pulse
from parkway.request import Preempt
from tests.api.anthropic_chats import CALL, HI, MESSAGES, STREAM, THOUGHT, TOOL, text, text_block
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor
from tests.api.parked import Act, Frames, frames, gone_while_parked, paced, park, recomputed, resume, step, until

PING = 'event: ping\ndata: {"type":"ping"}'
STOP = 'event: message_stop\ndata: {"type":"message_stop"}'
KEEPALIVE = [": preempt-keepalive", PING]


@pytest.fixture(autouse=True)
def one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer and call has one id, so that the bytes of two streams can be compared."""
    monkeypatch.setattr(anthropic_form, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex="0" * 32)))


async def stream(within: Connect, door: FakeDoor, *acts: Act, **fields: Any) -> list[str]:
    """The frames of a paced door that does `acts`, then steps until the end."""
    async with within(door, text()) as http:
        asking = asyncio.create_task(http.post(MESSAGES, json=STREAM | fields))
        await until(lambda: door.open)
        for act in acts:
            act(door)
        while door.open:
            door.step()
        answer = await asking
    assert answer.status_code == 200, answer.text
    return frames(answer.text)


ANSWERS = ["abcdefgh", THOUGHT + "plain", f"{THOUGHT}I look.\n{CALL}"]


@pytest.mark.parametrize("answer", ANSWERS)
async def test_events_are_those_of_a_chat_that_never_parked(within: Connect, answer: str) -> None:
    alone = await stream(within, paced(answer), tools=[TOOL])
    rounds = len(answer.encode()) // 4
    acts = (park(), resume(), *(step, step, step, step, park(), resume(), recomputed()) * rounds)
    parked = await stream(within, paced(answer), *acts, tools=[TOOL])
    assert parked[1:3] == [": preempted", ": resumed"]
    assert parked.count(": preempted") == rounds + 1
    assert [frame for frame in parked if not frame.startswith(":")] == alone


async def test_the_record_is_told_at_the_end(within: Connect) -> None:
    record = {"parks": 2, "recomputes": 1, "parked_ms": 40}
    *_, last, stop = await stream(within, paced(preempt=Preempt(2, 1, 40)), park(), resume())
    assert json.loads(last.split("data: ")[1])["preempt"] == record
    assert stop == STOP
    async with within(FakeDoor(preempt=Preempt(2, 1, 40))) as http:
        assert (await http.post(MESSAGES, json=HI)).json()["preempt"] == record


async def test_notices_as_pings_beside_comments(within: Connect) -> None:
    told = await stream(within, paced(), step, park(), resume(), notices="chunks")
    at = told.index(": preempted")
    kinds = [json.loads(frame.removeprefix("event: ping\ndata: ")) for frame in (told[at + 1], told[at + 3])]
    assert told[at + 2] == ": resumed"
    assert kinds == [
        {"type": "ping", "parkway": {"state": "preempted", "ahead": 2, "waited_ms": 0}},
        {"type": "ping", "parkway": {"state": "resumed", "ahead": 0, "waited_ms": 40}},
    ]


async def test_a_request_may_go_without_notices(within: Connect) -> None:
    told = await stream(within, paced(), step, park(), resume(), notices="off")
    assert told == await stream(within, paced())


async def test_a_whole_answer_has_no_notice(within: Connect) -> None:
    async with within(door := paced()) as http:
        asking = asyncio.create_task(http.post(MESSAGES, json=HI))
        await until(lambda: door.open)
        for act in (park(), resume(), step, step, step, step):
            act(door)
        assert (await asking).json()["content"] == [text_block("abc")]


async def test_keepalives_from_preempted_to_resumed(live: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "KEEPALIVE_SECONDS", 0.01)
    async with live(door := paced()) as http, http.stream("POST", MESSAGES, json=STREAM) as answer:
        told = Frames(answer)
        assert (await told.take(1))[0].startswith("event: message_start\n")
        door.notify("preempted")
        assert await told.take(5) == [": preempted", *KEEPALIVE * 2]
        door.notify("resumed")
        assert set(await told.until(": resumed")) <= {*KEEPALIVE}
        door.step(tokens=9)
        assert not [frame for frame in await told.until(STOP) if frame in KEEPALIVE]


async def test_a_ping_in_silence(live: Connect) -> None:
    body = STREAM | {"notices": "off"}
    async with (
        live(door := paced(), sse_ping_interval=0.01) as http,
        http.stream("POST", MESSAGES, json=body) as answer,
    ):
        told = Frames(answer)
        assert (await told.take(3))[1:] == [PING, PING]
        door.step(tokens=9)
        await told.until(STOP)


async def test_a_request_may_go_without_pings(live: Connect) -> None:
    body = STREAM | {"sse_ping_interval": -1}
    async with (
        live(door := paced(), sse_ping_interval=0.001) as http,
        http.stream("POST", MESSAGES, json=body) as answer,
    ):
        await asyncio.sleep(0.02)
        door.step(tokens=9)
        assert PING not in await Frames(answer).until(STOP)


async def test_the_message_starts_before_the_first_token(live: Connect) -> None:
    async with live(door := paced()) as http, http.stream("POST", MESSAGES, json=STREAM) as answer:
        pieces = answer.aiter_text()
        assert (await anext(pieces)).startswith("event: message_start\n")
        door.step()
        begun = await anext(pieces)
        assert [frame.split("\n")[0] for frame in frames(begun)] == [
            "event: content_block_start",
            "event: content_block_delta",
        ]
        door.step(tokens=9)
        assert STOP in "".join([piece async for piece in pieces])


@pytest.mark.parametrize("streamed", [False, True])
async def test_who_goes_away_while_parked_is_cancelled(live: Connect, streamed: bool) -> None:
    async with live(door := paced()) as http:
        await gone_while_parked(http, door, MESSAGES, HI | {"stream": streamed})
        assert door.cancelled == [0]
