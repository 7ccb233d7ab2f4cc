"""Responses, streamed and whole: items, states, usage, log-probabilities, the exact events."""

import asyncio
import re
from typing import Any

import pytest

from parkway.request import Output
from tests.api.anthropic_chats import CALL, THOUGHT, text
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor
from tests.api.parked import until
from tests.api.responses_chats import (
    HI,
    NEVER_PARKED,
    STREAM,
    TOOL,
    URL,
    assembled,
    called,
    events,
    kinds,
    message,
    thought,
    without_ids,
)

ARGUMENTS = '{"at": "/é"}'
RESPONSE: dict[str, Any] = {
    "object": "response",
    "model": "nick",
    "parkway": {"seed": 5},
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
}


async def test_whole_response(within: Connect) -> None:
    async with within(door := FakeDoor("Grüße", cached=[3])) as http:
        answer = await http.post(URL, json=HI | {"model": "toy", "store": True})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert re.fullmatch("resp_[0-9a-f]{32}", told["id"])
    assert re.fullmatch("msg_[0-9a-f]{32}", told["output"][0]["id"])
    assert told["created_at"] <= told["completed_at"]
    usage = {
        "input_tokens": 8,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 16,
    }
    assert without_ids(told) == RESPONSE | {"output": [message("Grüße")], "usage": usage, "preempt": NEVER_PARKED}
    assert (bytes(door.asked[0].prompt), door.asked[0].seed) == (b"<user>Hi", 5)


async def test_events_of_a_stream(within: Connect) -> None:
    async with within(FakeDoor("hé")) as http:
        answer = await http.post(URL, json=STREAM)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    created, in_progress, *told, completed = events(answer.text)
    begun = created["response"]
    assert begun["usage"] is None
    assert without_ids(dict(begun)) == RESPONSE | {"status": "in_progress", "usage": None, "output": []}
    assert in_progress["response"] == begun
    item_id = told[0]["item"]["id"]
    place = {"item_id": item_id, "output_index": 0, "content_index": 0}
    whole = message("hé")
    [part] = whole["content"]
    assert [{name: event[name] for name in event if name != "sequence_number"} for event in told] == [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": whole | {"id": item_id, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
        {"type": "response.output_text.delta", **place, "delta": "h", "logprobs": []},
        {"type": "response.output_text.delta", **place, "delta": "é", "logprobs": []},
        {"type": "response.output_text.done", **place, "text": "hé", "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": whole | {"id": item_id}},
    ]
    assert completed["type"] == "response.completed"
    assert completed["response"]["output"] == [whole | {"id": item_id}]
    assert completed["response"]["preempt"] == NEVER_PARKED
    assert completed["response"]["usage"]["output_tokens"] == 4


async def test_events_of_thoughts_and_calls(within: Connect) -> None:
    async with within(FakeDoor(THOUGHT + CALL), text()) as http:
        told = kinds(events((await http.post(URL, json=STREAM | {"tools": [TOOL]})).text))
    each = [kind for at, kind in enumerate(told) if told[at - 1] != kind]
    assert each == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


ANSWERS: list[tuple[str, list[dict[str, Any]]]] = [
    ("", []),
    ("plain", [message("plain")]),
    (THOUGHT, [thought("hm, so")]),
    (THOUGHT + "plain", [thought("hm, so"), message("plain")]),
    (CALL, [called(ARGUMENTS)]),
    (f"{THOUGHT}I look.\n{CALL}\n{CALL}", [thought("hm, so"), message("I look."), *[called(ARGUMENTS)] * 2]),
]


@pytest.mark.parametrize(("answer", "items"), ANSWERS)
async def test_items_streamed_and_whole(within: Connect, answer: str, items: list[dict[str, Any]]) -> None:
    async with within(FakeDoor(answer), text()) as http:
        whole = (await http.post(URL, json=HI | {"tools": [TOOL]})).json()
        told = events((await http.post(URL, json=STREAM | {"tools": [TOOL]})).text)
    streamed = without_ids(assembled(told))
    assert streamed == without_ids(whole)
    assert (streamed["output"], streamed["status"]) == (items, "completed")
    thoughts = streamed["usage"]["output_tokens_details"]["reasoning_tokens"]
    assert bool(thoughts) == answer.startswith("<think>")


CUT: list[tuple[dict[str, Any], str, list[dict[str, Any]]]] = [
    ({"max_output_tokens": 3}, "incomplete", [message("abc", "incomplete")]),
    ({"max_output_tokens": 0}, "incomplete", []),
    ({"max_tokens": 2}, "incomplete", [message("ab", "incomplete")]),
    ({"max_output_tokens": -1}, "completed", [message("abcdef")]),
    ({"stop": ["de"]}, "completed", [message("abc")]),
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("fields", "status", "items"), CUT)
async def test_why_a_response_ended(
    within: Connect, fields: dict[str, Any], status: str, items: list[dict[str, Any]], streamed: bool
) -> None:
    async with within(FakeDoor("abcdef")) as http:
        answer = await http.post(URL, json=HI | fields | {"stream": streamed})
    told = assembled(events(answer.text)) if streamed else answer.json()
    assert told["completed_at"] is None or status == "completed"
    assert (without_ids(told)["output"], told["status"]) == (items, status)
    why = {"reason": "max_output_tokens"} if status == "incomplete" else None
    assert told["incomplete_details"] == why


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_that_was_cut_off(within: Connect, streamed: bool) -> None:
    limit = len((THOUGHT + CALL[: CALL.index("/")]).encode()) - 1
    body = HI | {"tools": [TOOL], "max_output_tokens": limit, "stream": streamed}
    async with within(FakeDoor(THOUGHT + CALL), text()) as http:
        answer = await http.post(URL, json=body)
    told = assembled(events(answer.text)) if streamed else answer.json()
    assert without_ids(told)["output"] == [thought("hm, so"), called('{"at": ', "incomplete")]
    assert told["status"] == "incomplete"


async def test_the_context_may_end_first(within: Connect) -> None:
    async with within(door := FakeDoor(paced=True)) as http:
        asking = asyncio.create_task(http.post(URL, json=HI))
        await until(lambda: door.open)
        door.open.pop(0).sink(Output(0, [ord("y")], finish_reason="length"))
        answer = (await asking).json()
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


@pytest.mark.parametrize("streamed", [False, True])
async def test_logprobs_of_what_is_said(within: Connect, streamed: bool) -> None:
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "tools": [TOOL], "stream": streamed}
    async with within(FakeDoor(f"{THOUGHT}hé.\n{CALL}"), text()) as http:
        answer = await http.post(URL, json=HI | fields)
    told = assembled(events(answer.text)) if streamed else answer.json()
    [part] = told["output"][1]["content"]
    assert part["text"] == "hé."
    assert [row["bytes"] for row in part["logprobs"]] == [[byte] for byte in "hé.".encode()]
    top = [{"token": "A", "logprob": -0.5, "bytes": [65]}, {"token": "B", "logprob": -1.5, "bytes": [66]}]
    assert part["logprobs"][0] == {"token": "h", "logprob": -ord("h") / 64, "bytes": [104], "top_logprobs": top}
    assert told["top_logprobs"] == 2


@pytest.mark.parametrize(
    ("fields", "rows", "top"), [({"top_logprobs": 1}, 2, 1), ({"include": ["message.output_text.logprobs"]}, 2, 0)]
)
async def test_either_field_asks_for_logprobs(within: Connect, fields: dict[str, Any], rows: int, top: int) -> None:
    async with within(FakeDoor("ab")) as http:
        told = (await http.post(URL, json=HI | fields)).json()["output"][0]["content"][0]["logprobs"]
    assert [len(row["top_logprobs"]) for row in told] == [top] * rows
