"""Anthropic's messages, streamed and whole: blocks, reasons, usage, and what a request's fields do to the chat."""

import asyncio
import json
import re
from typing import Any

import pytest

from parkway.request import Output
from tests.api.anthropic_chats import (
    CALL,
    COUNT,
    HI,
    MESSAGES,
    NEVER,
    NEVER_PARKED,
    NEVER_USED,
    STREAM,
    THOUGHT,
    TOOL,
    assembled,
    events,
    text,
    text_block,
)
from tests.api.conftest import Connect
from tests.api.fake import N_CTX, FakeDoor
from tests.api.parked import until

THINKING = {"type": "thinking", "thinking": "hm, so", "signature": "parkway"}
ONE = {"type": "tool", "name": "dir"}
USAGE = {"input_tokens": 8, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, **NEVER_USED}
CALLED = {"type": "tool_use", "name": "dir", "input": {"at": "/é"}, "caller": {"type": "direct"}}


def prompt(door: FakeDoor) -> str:
    return bytes(door.asked[-1].prompt).decode()


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """The message after its ids were looked at."""
    assert re.fullmatch("msg_[0-9a-f]{24}", message.pop("id"))
    for block in message["content"]:
        if block["type"] == "tool_use":
            assert re.fullmatch("toolu_[0-9a-f]{24}", block.pop("id"))
    return message


async def test_whole_message(within: Connect) -> None:
    async with within(door := FakeDoor("Grüße")) as http:
        answer = await http.post(MESSAGES, json=HI | {"model": "claude-sonnet-5"})
    assert answer.status_code == 200, answer.text
    assert re.fullmatch("req_[0-9a-f]{24}", answer.headers["request-id"])
    usage = {
        "input_tokens": 8,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 8,
    } | NEVER_USED
    assert without_ids(answer.json()) == {
        "type": "message",
        "role": "assistant",
        "model": "nick",
        "content": [text_block("Grüße")],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
        "parkway": {"seed": 5},
        "preempt": NEVER_PARKED,
        **NEVER,
    }
    assert (door.asked[0].seed, door.asked[0].sampling.max_tokens) == (5, 200)


async def test_frames_of_a_stream(within: Connect) -> None:
    async with within(FakeDoor("hé")) as http:
        answer = await http.post(MESSAGES, json=STREAM)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert re.fullmatch("req_[0-9a-f]{24}", answer.headers["request-id"])
    start, *told = events(answer.text)
    usage = {
        "input_tokens": 8,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
    } | NEVER_USED
    assert without_ids(start.pop("message")) == {
        "type": "message",
        "role": "assistant",
        "model": "nick",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
        "parkway": {"seed": 5},
        **NEVER,
    }
    assert told == [
        {"type": "content_block_start", "index": 0, "content_block": text_block("")},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": each}}
            for each in ("h", "é")
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": usage | {"output_tokens": 4},
            "preempt": NEVER_PARKED,
        },
        {"type": "message_stop"},
    ]


ANSWERS: list[tuple[str, list[dict[str, Any]], str]] = [
    ("", [], "end_turn"),
    ("plain", [text_block("plain")], "end_turn"),
    (THOUGHT, [THINKING], "end_turn"),
    (THOUGHT + "plain", [THINKING, text_block("plain")], "end_turn"),
    (CALL, [CALLED], "tool_use"),
    (f"{THOUGHT}I look.\n{CALL}\n{CALL}", [THINKING, text_block("I look."), CALLED, CALLED], "tool_use"),
]


@pytest.mark.parametrize(("answer", "blocks", "reason"), ANSWERS)
async def test_blocks_streamed_and_whole(
    within: Connect, answer: str, blocks: list[dict[str, Any]], reason: str
) -> None:
    async with within(FakeDoor(answer), text()) as http:
        whole = (await http.post(MESSAGES, json=HI | {"tools": [TOOL]})).json()
        told = events((await http.post(MESSAGES, json=STREAM | {"tools": [TOOL]})).text)
    streamed = without_ids(assembled(told))
    assert streamed == without_ids(whole)
    assert (streamed["content"], streamed["stop_reason"], streamed["stop_sequence"]) == (blocks, reason, None)


async def test_a_signature_ends_each_thought(within: Connect) -> None:
    async with within(FakeDoor(f"{THOUGHT}plain"), text()) as http:
        told = events((await http.post(MESSAGES, json=STREAM)).text)
    of_thought = [event for event in told if event.get("index") == 0]
    assert of_thought[0]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert of_thought[-2]["delta"] == {"type": "signature_delta", "signature": "parkway"}
    assert of_thought[-1]["type"] == "content_block_stop"
    assert told[-2]["usage"]["output_tokens_details"]["thinking_tokens"] > 0


async def test_a_thought_whose_text_was_not_asked_for(within: Connect) -> None:
    body = {"thinking": {"type": "adaptive", "display": "omitted"}}
    async with within(FakeDoor(f"{THOUGHT}plain"), text()) as http:
        whole = (await http.post(MESSAGES, json=HI | body)).json()
        told = events((await http.post(MESSAGES, json=STREAM | body)).text)
    assert whole["content"] == [THINKING | {"thinking": ""}, text_block("plain")]
    assert assembled(told)["content"] == whole["content"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_that_was_cut_off(within: Connect, streamed: bool) -> None:
    body = HI | {"tools": [TOOL], "max_tokens": len(CALL[: CALL.index("/")].encode()) - 1, "stream": streamed}
    async with within(FakeDoor(CALL), text()) as http:
        answer = await http.post(MESSAGES, json=body)
    if not streamed:
        assert without_ids(answer.json())["content"] == [CALLED | {"input": {}}]
        assert answer.json()["stop_reason"] == "max_tokens"
        return
    told = events(answer.text)
    pieces = [event["delta"]["partial_json"] for event in told if event["type"] == "content_block_delta"]
    assert "".join(pieces) == '{"at": '
    assert told[-2]["delta"]["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("fields", "reason", "sequence", "content"),
    [
        ({"max_tokens": 3}, "max_tokens", None, "abc"),
        ({"max_tokens": 0}, "max_tokens", None, None),
        ({"stop_sequences": ["xy", "ef", "de"]}, "stop_sequence", "de", "abc"),
        ({"stop_sequences": ["cde", "c"]}, "stop_sequence", "c", "ab"),
        ({"stop_sequences": ["fgh", "g"]}, "end_turn", None, "abcdef"),
    ],
)
async def test_why_an_answer_ended(
    within: Connect, fields: dict[str, Any], reason: str, sequence: str | None, content: str | None, streamed: bool
) -> None:
    async with within(FakeDoor("abcdef")) as http:
        answer = await http.post(MESSAGES, json=HI | fields | {"stream": streamed})
    message = assembled(events(answer.text)) if streamed else answer.json()
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)
    assert "".join(block["text"] for block in message["content"]) == (content or "")


async def test_the_context_may_end_first(within: Connect) -> None:
    async with within(door := FakeDoor(paced=True)) as http:
        asking = asyncio.create_task(http.post(MESSAGES, json=HI))
        await until(lambda: door.open)
        door.open.pop(0).sink(Output(0, [ord("y")], finish_reason="length"))  # before max_tokens
        answer = (await asking).json()
    assert (answer["stop_reason"], answer["content"]) == (
        "model_context_window_exceeded",
        [text_block("y")],
    )


async def test_usage_tells_cached_tokens_apart(within: Connect) -> None:
    async with within(FakeDoor("a", cached=[5, 6])) as http:
        whole = (await http.post(MESSAGES, json=HI)).json()["usage"]
        told = events((await http.post(MESSAGES, json=STREAM)).text)
    assert whole == {
        "input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 5,
        "output_tokens": 2,
        **NEVER_USED,
    }
    assert told[0]["message"]["usage"]["input_tokens"] == 8  # it isn't known yet
    assert told[-2]["usage"] == whole | {"input_tokens": 2, "cache_read_input_tokens": 6}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "<user>Hi<assistant>"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "<user>Hi<assistant>think"),
        ({"thinking": {"type": "adaptive"}}, "<user>Hi<assistant>think"),
        ({"thinking": {"type": "disabled"}}, "<user>Hi<assistant>nothink"),
        ({"output_config": {"effort": "low"}}, "<user>Hi<assistant>low"),
        ({"output_config": {"effort": "max"}}, "<user>Hi<assistant>high"),
        ({"tools": [TOOL]}, "+dir<user>Hi<assistant>"),
        ({"tools": [TOOL | {"type": "custom", "cache_control": {"type": "ephemeral"}}]}, "+dir<user>Hi<assistant>"),
        ({"tools": [TOOL], "tool_choice": {"type": "none"}}, "<user>Hi<assistant>"),
        ({"system": "Be."}, "<system>Be.<user>Hi<assistant>"),
    ],
)
async def test_what_the_template_is_told(within: Connect, fields: dict[str, Any], told: str) -> None:
    async with within(door := FakeDoor("a"), text()) as http:
        answer = await http.post(MESSAGES, json=HI | fields)
        count = await http.post(COUNT, json=HI | fields)
    assert answer.status_code == 200, answer.text
    assert prompt(door) == told
    assert count.json() == {"input_tokens": len(told)}
    assert re.fullmatch("req_[0-9a-f]{24}", count.headers["request-id"])
    assert len(door.asked) == 1


async def test_tokens_are_counted_without_max_tokens_and_beyond_the_context(within: Connect) -> None:
    long = {"messages": [{"role": "user", "content": "x" * (N_CTX - 6)}]}
    async with within(FakeDoor()) as http:
        assert (await http.post(COUNT, json=long)).json() == {"input_tokens": N_CTX}


async def test_sampling(within: Connect) -> None:
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop_sequences": ["END"], "min_p": 0.1, "priority": 7}
    async with within(door := FakeDoor("a")) as http:
        await http.post(MESSAGES, json=HI | fields)
    sampling = door.asked[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 40, 0.1)
    assert (sampling.stop, sampling.seed, door.asked[0].priority) == (("END",), 5, 7)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "any"},
        {"type": "tool", "name": "dir"},
        {"type": "tool", "name": "dir", "disable_parallel_tool_use": True},
    ],
)
async def test_a_call_that_must_be(within: Connect, choice: dict[str, Any]) -> None:
    async with within(door := FakeDoor(CALL), text()) as http:
        answer = await http.post(MESSAGES, json=HI | {"tools": [TOOL], "tool_choice": choice})
    assert answer.json()["stop_reason"] == "tool_use"
    assert door.asked[0].sampling.grammar is not None


async def test_one_call_at_most(within: Connect) -> None:
    body = HI | {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    async with within(door := FakeDoor(f"{CALL}\n{CALL}"), text()) as http:
        answer = await http.post(MESSAGES, json=body)
    assert without_ids(answer.json())["content"] == [CALLED]
    assert answer.json()["stop_reason"] == "tool_use"
    assert door.asked[0].sampling.grammar is None


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_schema_of_the_answer(within: Connect, wrapped: bool) -> None:
    schema = {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    field = {"output_config": {"format": schema}} if wrapped else {"output_format": schema}
    async with within(door := FakeDoor('{"a": 1}')) as http:
        answer = await http.post(MESSAGES, json=HI | field)
    assert json.loads(answer.json()["content"][0]["text"]) == {"a": 1}
    assert door.asked[0].sampling.grammar is not None


@pytest.mark.parametrize(
    "field",
    [
        {"grammar": 'root ::= "a"'},
        {"json_schema": {"type": "object"}},
        {"guided_regex": "a+"},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"choice": ["a", "b"]}},
    ],
    ids=str,
)
async def test_a_form_of_the_answer_as_other_endpoints_name_it(within: Connect, field: dict[str, Any]) -> None:
    async with within(door := FakeDoor("a")) as http:
        answer = await http.post(MESSAGES, json=HI | field)
    assert answer.status_code == 200
    assert door.asked[0].sampling.grammar is not None


async def test_an_answer_goes_on_with_its_own_beginning(within: Connect) -> None:
    begun = HI | {"messages": [*HI["messages"], {"role": "assistant", "content": "The best is ("}]}
    async with within(door := FakeDoor("B)"), text()) as http:
        answer = await http.post(MESSAGES, json=begun)
    assert prompt(door) == "<user>Hi<assistant>The best is ("
    assert answer.json()["content"] == [text_block("B)")]
