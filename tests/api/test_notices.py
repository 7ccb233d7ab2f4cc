"""Notices of parks among the pieces of a stream, exactly and at once."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from openai import AsyncOpenAI

from parkway.api import answer, forms
from parkway.request import Preempt
from tests.api.conftest import Connect
from tests.api.fake import N_CTX, FakeDoor
from tests.api.parked import (
    ASKED,
    CHAT,
    COMPLETIONS,
    chunks,
    comments,
    frames,
    paced,
    park,
    recomputed,
    resume,
    step,
    stream,
)


@pytest.fixture(autouse=True)
def one_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer has one id and one time, so that the bytes of two streams can be compared."""
    monkeypatch.setattr(forms, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex="0")))
    monkeypatch.setattr(forms, "time", SimpleNamespace(time=lambda: 0))
    monkeypatch.setattr(answer, "perf_counter", lambda: 1.0)


@pytest.mark.parametrize("url", [CHAT, COMPLETIONS])
async def test_notices_stand_between_pieces_that_are_those_of_a_chat_that_never_parked(
    within: Connect, url: str
) -> None:
    alone = frames(await stream(within, paced(), url))
    before = 1 if url == CHAT else 0  # the frame with the role
    acts = (step, park(), resume(), step, park(), resume(), recomputed(), step)
    parked = frames(await stream(within, paced(), url, *acts))
    expected = alone.copy()
    expected[before + 1 : before + 1] = [": preempted", ": resumed"]
    expected[before + 4 : before + 4] = [": preempted", ": resumed", ": recomputed"]
    assert parked == expected


@pytest.mark.parametrize("url", [CHAT, COMPLETIONS])
async def test_each_notice_goes_out_at_once(live: Connect, url: str) -> None:
    async with live(door := paced()) as http, http.stream("POST", url, json=ASKED[url]) as answer:
        pieces = answer.aiter_raw()
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        if url == CHAT:
            assert b'"role":"assistant"' in await anext(pieces)
        door.notify("preempted")  # before the first token
        assert await anext(pieces) == b": preempted\n\n"
        door.notify("resumed")
        door.notify("recomputed")
        assert await anext(pieces) == b": resumed\n\n: recomputed\n\n"
        door.step()
        first = await anext(pieces)
        assert (first[:6], first.count(b"\n\n")) == (b"data: ", 1)
        door.notify("preempted")
        door.notify("resumed")
        assert await anext(pieces) == b": preempted\n\n: resumed\n\n"
        door.step(tokens=9)
        assert (await anext(pieces)).startswith(b"data: ")


async def test_a_notice_lets_no_text_go_that_is_held_back(within: Connect) -> None:
    body: dict[str, Any] = {"stop": ["bX"]}
    alone = await stream(within, paced("ab\u00e9d"), CHAT, **body)
    acts = (step, step, park(), resume(), step, park(), resume(), step)  # within "b…" of a stop string, within "é"
    parked = await stream(within, paced("ab\u00e9d"), CHAT, *acts, **body)
    assert [c["choices"] for c in chunks(parked)] == [c["choices"] for c in chunks(alone)]
    texts = [
        frame[0] == ":" or json.loads(frame[6:])["choices"][0]["delta"].get("content") for frame in frames(parked)[1:-2]
    ]
    assert texts == ["a", True, True, True, True, "b\u00e9", "d"]


async def test_prompts_are_told_apart_and_the_first_is_bare(within: Connect) -> None:
    acts = (park(1), park(0), park(2), resume(1), resume(2), recomputed(2), resume(0), recomputed(0))
    told = await stream(within, paced(), COMPLETIONS, *acts, chats=3, prompt=["Hi", "Ho", "Ha"])
    assert comments(told) == [
        ": preempted 1",
        ": preempted",
        ": preempted 2",
        ": resumed 1",
        ": resumed 2",
        ": recomputed 2",
        ": resumed",
        ": recomputed",
    ]


async def test_choices_have_the_number_of_their_prompt(within: Connect) -> None:
    acts = (park(1), park(3), resume(1), resume(3))  # the second choice of each prompt
    told = await stream(within, paced(), COMPLETIONS, *acts, chats=4, prompt=["Hi", "Ho"], n=2)
    assert comments(told) == [": preempted", ": preempted 1", ": resumed", ": resumed 1"]


@pytest.mark.parametrize("url", [CHAT, COMPLETIONS])
async def test_chunks_follow_the_comments(within: Connect, url: str) -> None:
    usage: dict[str, Any] = {"stream_options": {"include_usage": True}}
    alone = frames(await stream(within, paced(), url, **usage))
    acts = (step, park(), resume(), recomputed())
    parked = frames(await stream(within, paced(), url, *acts, notices="chunks", **usage))
    at = (1 if url == CHAT else 0) + 1
    told = parked[at : at + 6]
    assert parked[:at] + parked[at + 6 :] == alone
    assert told[::2] == [": preempted", ": resumed", ": recomputed"]
    head = {key: value for key, value in chunks("\n\n".join(alone) + "\n\n")[0].items() if key != "choices"}
    states = [("preempted", 2, 0), ("resumed", 0, 40), ("recomputed", 0, 0)]
    assert [json.loads(frame.removeprefix("data: ")) for frame in told[1::2]] == [
        head | {"choices": [], "parkway": {"state": state, "ahead": ahead, "waited_ms": waited_ms, "index": 0}}
        for state, ahead, waited_ms in states
    ]


@pytest.mark.parametrize(
    ("server", "request_field", "expected"),
    [
        ("comments", None, "comments"),
        ("off", None, "off"),
        ("chunks", None, "chunks"),
        ("off", "chunks", "chunks"),
        ("chunks", "off", "off"),
        ("off", "comments", "comments"),
    ],
)
async def test_a_request_has_the_last_word_on_notices(
    within: Connect, server: str, request_field: str | None, expected: str
) -> None:
    def connect(door: FakeDoor) -> Any:
        return within(door, notices=server)

    told = await stream(connect, paced(), CHAT, park(), resume(), notices=request_field)
    assert comments(told) == ([] if expected == "off" else [": preempted", ": resumed"])
    assert len([c for c in chunks(told) if not c["choices"]]) == (2 if expected == "chunks" else 0)
    assert chunks(told)[-1]["preempt"] == {"parks": 0, "recomputes": 0, "parked_ms": 0}


class _ParksAtOnce(FakeDoor):
    def submit(self, request: Any, sink: Any) -> None:
        super().submit(request, sink)
        self.notify("preempted", request.id)


@pytest.mark.parametrize(
    "prompt", [["Hi", "x" * N_CTX], ["Hi", [257]], ["Hi", ""], ["Hi", [-1]]], ids=["long", "id", "empty", "negative"]
)
async def test_a_refusal_follows_no_notice(within: Connect, prompt: list[Any]) -> None:
    async with within(door := _ParksAtOnce(paced=True)) as http:
        answer = await http.post(COMPLETIONS, json=ASKED[COMPLETIONS] | {"prompt": prompt})
    assert (answer.status_code, answer.json()["error"]["param"], door.asked) == (400, "prompt", [])


@pytest.mark.parametrize("notices", ["comments", "chunks"])
async def test_openais_client_reads_a_parked_stream_as_it_reads_any(live: Connect, notices: str) -> None:
    door = paced("Grüße", preempt=Preempt(1, 1, 40))
    url = CHAT
    async with live(door) as http, AsyncOpenAI(api_key="none", base_url=f"{http.base_url}/v1", max_retries=0) as client:
        asked: Any = ASKED[url] | {"model": "toy", "extra_body": {"notices": notices}}
        reading = await client.chat.completions.create(**asked)
        for act in (park(), resume(), step, step, park(), resume(), recomputed()):
            act(door)
        while door.open:
            door.step()
        told = [chunk async for chunk in reading]
    choices = [choice for chunk in told for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "Grüße"
    assert choices[-1].finish_reason == "stop"
    assert told[-1].model_extra is not None
    assert told[-1].model_extra.pop("timings")["predicted_n"] == len("Grüße".encode()) + 1
    assert told[-1].model_extra == {"parkway": {"seed": 5}, "preempt": {"parks": 1, "recomputes": 1, "parked_ms": 40}}
    assert len(told) - len(choices) == (5 if notices == "chunks" else 0)
