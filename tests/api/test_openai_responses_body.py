"""What the fields of a request for a response do to the chat, and what the response says of them."""

import json
from typing import Any

import pytest

from tests.api.anthropic_chats import CALL, THOUGHT, text
from tests.api.conftest import Connect
from tests.api.fake import N_CTX, FakeDoor
from tests.api.responses_chats import HI, TOOL, URL, called, message, without_ids

ARGUMENTS = '{"at": "/é"}'


def prompt(door: FakeDoor) -> str:
    return bytes(door.asked[-1].prompt).decode()


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "<user>Hi<assistant>"),
        ({"instructions": "Be."}, "<system>Be.<user>Hi<assistant>"),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, "<user>Hi<assistant>low"),
        ({"reasoning": {"effort": "none"}}, "<user>Hi<assistant>nothinknone"),
        ({"enable_thinking": True}, "<user>Hi<assistant>think"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "<user>Hi<assistant>nothink"),
        ({"tools": [TOOL]}, "+dir<user>Hi<assistant>"),
        ({"tools": [TOOL], "tool_choice": "none"}, "<user>Hi<assistant>"),
        (
            {
                "tools": [TOOL, TOOL | {"name": "time"}],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "time"}],
                },
            },
            "+time<user>Hi<assistant>",
        ),
    ],
)
async def test_what_the_template_is_told(within: Connect, fields: dict[str, Any], told: str) -> None:
    async with within(door := FakeDoor("a"), text()) as http:
        answer = await http.post(URL, json=HI | fields)
        count = await http.post(f"{URL}/input_tokens", json=HI | fields)
    assert answer.status_code == 200, answer.text
    assert prompt(door) == told
    assert count.json() == {"object": "response.input_tokens", "input_tokens": len(told)}
    assert len(door.asked) == 1


async def test_tokens_are_counted_beyond_the_context(within: Connect) -> None:
    long = "x" * (N_CTX - 6)
    async with within(FakeDoor()) as http:
        response = await http.post(f"{URL}/input_tokens", json={"input": long})
        chat = await http.post(
            "/v1/chat/completions/input_tokens", json={"messages": [{"role": "user", "content": long}]}
        )
    assert (response.json()["input_tokens"], chat.json()) == (N_CTX, {"input_tokens": N_CTX})


async def test_what_a_response_says_of_its_request(within: Connect) -> None:
    asked: dict[str, Any] = {
        "instructions": "I",
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "presence_penalty": 0.5,
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "temperature": 0.25,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
        "tool_choice": {"type": "function", "name": "dir"},
        "tools": [TOOL],
        "top_p": 0.5,
        "user": "u",
        "reasoning": {"effort": "high", "summary": None},
    }
    async with within(FakeDoor("a"), text()) as http:
        answer = await http.post(URL, json=HI | asked | {"reasoning": {"effort": "high", "summary": "detailed"}})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert {name: told[name] for name in asked} == asked


async def test_sampling(within: Connect) -> None:
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "stop": "END", "min_p": 0.1, "priority": 7}
    async with within(door := FakeDoor("a")) as http:
        await http.post(URL, json=HI | fields | {"max_output_tokens": 20, "logit_bias": {"65": -1}})
    sampling = door.asked[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.5, 0.9, 40, 0.1)
    assert (sampling.stop, sampling.max_tokens, sampling.logit_bias) == (("END",), 20, ((65, -1.0),))
    assert (sampling.seed, door.asked[0].priority) == (5, 7)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "dir"}])
async def test_a_call_that_must_be(within: Connect, choice: Any) -> None:
    async with within(door := FakeDoor(CALL), text()) as http:
        answer = await http.post(URL, json=HI | {"tools": [TOOL], "tool_choice": choice})
    assert without_ids(answer.json())["output"] == [called(ARGUMENTS)]
    assert door.asked[0].sampling.grammar is not None


@pytest.mark.parametrize("strict", [True, False])
async def test_a_strict_tool(within: Connect, strict: bool) -> None:
    async with within(door := FakeDoor(CALL), text()) as http:
        answer = await http.post(URL, json=HI | {"tools": [TOOL | {"strict": strict}]})
    assert without_ids(answer.json())["output"] == [called(ARGUMENTS)]
    assert (door.asked[0].sampling.grammar is not None) == strict


async def test_one_call_at_most(within: Connect) -> None:
    async with within(FakeDoor(f"{CALL}\n{CALL}"), text()) as http:
        answer = await http.post(URL, json=HI | {"tools": [TOOL], "parallel_tool_calls": False})
    assert without_ids(answer.json())["output"] == [called(ARGUMENTS)]


@pytest.mark.parametrize(
    "fields",
    [
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"}},
        {"text": {"format": {"type": "json_object"}}},
        {"grammar": 'root ::= "{}"'},
    ],
)
async def test_a_form_of_the_answer(within: Connect, fields: dict[str, Any]) -> None:
    async with within(door := FakeDoor("{}")) as http:
        answer = await http.post(URL, json=HI | fields)
    assert json.loads(answer.json()["output"][0]["content"][0]["text"]) == {}
    assert door.asked[0].sampling.grammar is not None


async def test_thoughts_in_the_text(within: Connect) -> None:
    async with within(FakeDoor(f"{THOUGHT}plain"), text()) as http:
        answer = await http.post(URL, json=HI | {"reasoning_format": "none"})
    assert without_ids(answer.json())["output"] == [message(f"{THOUGHT}plain")]
