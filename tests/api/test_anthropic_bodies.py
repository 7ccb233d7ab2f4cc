"""What Anthropic's clients send: messages as a template gets them, and what is refused by name."""

import json
from typing import Any

import pytest

from tests.api.anthropic_chats import COUNT, HI, MESSAGES, TOOL, text, text_block
from tests.api.conftest import Connect
from tests.api.fake import EOS, N_CTX, FakeDoor

USED = {"type": "tool_use", "id": "t1", "name": "dir", "input": {"at": "/"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1"}


def said(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def words(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": each, "cache_control": {"type": "ephemeral"}} for each in texts]


CHATS: list[tuple[str, dict[str, Any], str]] = [
    ("lines", {"messages": [said(words("a", "", "b"))]}, "<user>a\nb"),
    ("one message", {"messages": [said("a"), said(words("b"))]}, "<user>a\nb"),
    (
        "an answer as it was written",
        {"messages": [said("a"), said(words("b", "c"), "assistant"), said("d", "assistant"), said("e")]},
        "<user>a<assistant>bcd<user>e",
    ),
    ("system blocks", {"system": words("a", "b"), "messages": [said("c")]}, "<system>a\nb<user>c"),
    (
        "a system message first",
        {"system": "a", "messages": [said("b", "system"), said("c"), said("d", "system"), said("e")]},
        "<system>a\nb<user>c<system>d<user>e",
    ),
    (
        "who counts",
        {"system": words("x-anthropic-billing-header: cch=1f;", "a"), "messages": [said("b")]},
        "<system>a<user>b",
    ),
    ("nothing but that", {"system": words("x-anthropic-billing-header: x"), "messages": [said("b")]}, "<user>b"),
    (
        "thoughts",
        {
            "messages": [
                said("a"),
                said(
                    [
                        {"type": "thinking", "thinking": "t", "signature": "s"},
                        {"type": "redacted_thinking", "data": "d"},
                        *words("b"),
                    ],
                    "assistant",
                ),
                said("c"),
            ]
        },
        "<user>a<assistant>[t]b<user>c",
    ),
    (
        "calls and results",
        {
            "messages": [
                said("a"),
                said([*words("b"), USED, USED | {"id": "t2", "input": {}}], "assistant"),
                said(
                    [RESULT | {"content": "r"}, RESULT | {"tool_use_id": "t2", "content": words("s", "t")}, *words("c")]
                ),
            ]
        },
        '<user>a<assistant>b!dir{"at": "/"}!dir{}<tool t1 dir>r<tool t2 dir>s\nt<user>c',
    ),
    (
        "results alone",
        {"messages": [said("a"), said([USED], "assistant"), said([RESULT | {"is_error": True}])]},
        '<user>a<assistant>!dir{"at": "/"}<tool t1 dir>',
    ),
    ("a result of nobody's", {"messages": [said([RESULT | {"content": "r"}])]}, "<tool t1>r"),
    ("an empty answer last", {"messages": [said("a"), said("", "assistant")]}, "<user>a"),
]


@pytest.mark.parametrize(("fields", "told"), [chat[1:] for chat in CHATS], ids=[chat[0] for chat in CHATS])
async def test_messages_for_the_template(within: Connect, fields: dict[str, Any], told: str) -> None:
    async with within(door := FakeDoor("a"), text()) as http:
        answer = await http.post(MESSAGES, json=HI | fields)
    assert answer.status_code == 200, answer.text
    assert bytes(door.asked[0].prompt).decode() == f"{told}<assistant>"


IGNORED = {
    "metadata": {"user_id": "u"},
    "service_tier": "auto",
    "cache_control": {"type": "ephemeral"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
    "betas": ["x"],
    "container": None,
    "mcp_servers": [],
    "stop_sequences": [],
    "stop": "H",
    "max_completion_tokens": 1,
    "tools": [],
    "tool_choice": {"type": "auto"},
    "typical_p": 1,
}


async def test_what_changes_no_answer(within: Connect) -> None:
    async with within(door := FakeDoor("Hello")) as http:
        headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-api-key": "k"}
        answer = await http.post(f"{MESSAGES}?beta=true", json=HI | IGNORED, headers=headers)
        alone = await http.post(MESSAGES, json=HI)
    assert answer.json()["content"] == alone.json()["content"] == [text_block("Hello")]
    first, second = door.asked
    assert (first.prompt, first.sampling, first.stop_ids) == (second.prompt, second.sampling, frozenset([EOS]))


@pytest.mark.parametrize("strict", [True, False])
async def test_a_strict_tool(within: Connect, strict: bool) -> None:
    async with within(door := FakeDoor("a"), text()) as http:
        answer = await http.post(MESSAGES, json=HI | {"tools": [TOOL | {"strict": strict}]})
    assert answer.status_code == 200
    assert (door.asked[0].sampling.grammar is not None) == strict


def of_blocks(*blocks: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"messages": [said("a"), said([*words("b"), *blocks], role)]}


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens: "),
    ({"max_tokens": -1}, "max_tokens: "),
    ({"messages": []}, "messages: "),
    ({"messages": [said("a", "tool")]}, "messages.0.role: "),
    ({"messages": [said(None)]}, "messages.0.content: "),
    ({"messages": [said("\ud800")]}, "messages.0.content: "),
    (of_blocks({"type": "image", "source": {}}), "messages.1.content.1: blocks of type 'image' are not supported"),
    (of_blocks({"type": "document"}), "messages.1.content.1: blocks of type 'document' are not supported"),
    (
        of_blocks({"type": "server_tool_use"}, role="assistant"),
        "messages.1.content.1: blocks of type 'server_tool_use'",
    ),
    (
        of_blocks(RESULT | {"content": [{"type": "image", "source": {}}]}),
        "messages.1.content.1.tool_result.content.0: blocks of type 'image' are not supported",
    ),
    (of_blocks({"text": "b"}), "messages.1.content.1: "),
    (of_blocks(USED), "messages.1: content.1: tool_use blocks are the assistant's"),
    (of_blocks(RESULT, role="assistant"), "messages.1: content.1: tool_result blocks are the user's"),
    (of_blocks(USED, role="assistant"), "messages: a tool_use block must be followed by"),
    (
        of_blocks({"type": "tool_use", "id": "t", "name": "d"}, role="assistant"),
        "messages.1.content.1.tool_use.input: ",
    ),
    ({"system": [{"type": "image"}]}, "system.0: blocks of type 'image' are not supported"),
    ({"tools": [TOOL, SEARCH]}, "tools.1: tools of type 'web_search_20250305' are not supported"),
    ({"tools": [TOOL, TOOL]}, "tools.1.name: 'dir' is there twice"),
    ({"tools": [{"name": "d"}]}, "tools.0.input_schema: "),
    ({"tool_choice": {"type": "any"}}, "tool_choice: asks for a call, but there are no tools"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name: 'x' is none of the tools"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name: None is none of the tools"),
    ({"tools": [TOOL], "output_format": SCHEMA}, "output_format.schema: can't be combined with tools"),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}},
        "output_config.format.schema is no JSON Schema",
    ),
    ({"output_config": {"format": {"type": "regex"}}}, "output_config.format.type: "),
    ({"thinking": {"type": "perhaps"}}, "thinking.type: "),
    ({"stop_sequences": [""]}, "stop_sequences.0: "),
    ({"stop_sequences": "x"}, "stop_sequences: "),
    ({"temperature": -1}, "temperature must be between"),
    ({"container": "c"}, "container is not supported"),
    ({"mcp_servers": [{"type": "url"}]}, "mcp_servers is not supported"),
    ({"thread": {"id": "t"}}, "thread is not supported"),
    ({"tfs_z": 0.5}, "tfs_z is not supported"),
    ({"n": 2}, "n is not supported"),
    ({"logprobs": True}, "logprobs is not supported"),
    ({"grammar": 'root ::= "a"', "output_format": SCHEMA}, "grammar can't be combined with output_format.schema"),
    ({"guided_regex": "("}, "guided_regex is no regular expression"),
    ({"tools": [TOOL], "grammar": 'root ::= "a"'}, "grammar: can't be combined with tools"),
    (
        {"tools": [{"name": "d", "input_schema": {"type": "string"}}]},
        "tools: the arguments of d must be of type object, not 'string'",
    ),
    ({"messages": [said("x" * N_CTX)]}, "prompt is too long: 262 tokens > 255 maximum"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED, ids=[message for _, message in REFUSED])
async def test_refused_by_name(within: Connect, fields: dict[str, Any], message: str) -> None:
    body = {name: value for name, value in (HI | fields).items() if value is not None}
    async with within(door := FakeDoor()) as http:
        answer = await http.post(MESSAGES, content=json.dumps(body))
    told = answer.json()
    assert (answer.status_code, door.asked) == (400, []), told
    assert told["error"]["message"].startswith(message)
    assert told == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": told["error"]["message"]},
        "request_id": answer.headers["request-id"],
    }


async def test_a_count_is_refused_as_an_answer_is(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.post(COUNT, json=of_blocks({"type": "image"}))
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
