"""What clients of the Responses API send: items as a template gets them, and what is refused by name."""

import json
from typing import Any

import pytest

from parkway.config import RequestDefaults
from tests.api.anthropic_chats import text
from tests.api.conftest import Connect
from tests.api.fake import EOS, N_CTX, FakeDoor
from tests.api.responses_chats import HI, TOOL, URL

CALLED = {"type": "function_call", "call_id": "c1", "name": "dir", "arguments": '{"at": "/"}', "id": "fc_1"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "r"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]}


def said(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def words(*texts: str, kind: str = "input_text") -> list[dict[str, Any]]:
    return [{"type": kind, "text": each} for each in texts]


def answered(*texts: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": each, "annotations": [], "logprobs": []} for each in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


CHATS: list[tuple[str, dict[str, Any], str]] = [
    ("a text", {"input": "a"}, "<user>a"),
    ("parts", {"input": [said(words("a", "b"))]}, "<user>ab"),
    ("messages", {"input": [said("a"), said("b", "assistant"), said("c")]}, "<user>a<assistant>b<user>c"),
    ("an answer sent back", {"input": [said("a"), answered("b", "c"), said("d")]}, "<user>a<assistant>bc<user>d"),
    (
        "a refusal",
        {"input": [said("a"), answered() | {"content": [{"type": "refusal", "refusal": "no"}]}, said("b")]},
        "<user>a<assistant>no<user>b",
    ),
    (
        "one system message first",
        {"instructions": "a", "input": [said("b", "developer"), said("c", "system"), said("d"), said("e", "system")]},
        "<system>a\n\nb\n\nc<user>d<system>e",
    ),
    ("only instructions of a developer", {"input": [said("a", "developer")]}, "<system>a"),
    (
        "thoughts and calls are one answer",
        {"input": [said("a"), THOUGHT, answered("b"), CALLED, CALLED | {"call_id": "c2", "arguments": "{}"}, RESULT]},
        '<user>a<assistant>[t]b!dir{"at": "/"}!dir{}<tool c1 dir>r',
    ),
    (
        "results in parts, and answers after them",
        {"input": [CALLED, RESULT | {"output": words("r", "s")}, answered("b"), said("c")]},
        '<assistant>!dir{"at": "/"}<tool c1 dir>rs<assistant>b<user>c',
    ),
    ("a result of nobody's", {"input": [RESULT]}, "<tool c1>r"),
    (
        "thoughts that can be read",
        {
            "input": [
                said("a"),
                THOUGHT,
                {"type": "reasoning", "summary": words("u", kind="summary_text"), "encrypted_content": "x"},
                {"type": "reasoning", "summary": [], "encrypted_content": "x"},
                answered("b"),
            ]
        },
        "<user>a<assistant>[t\nu]b",
    ),
]


@pytest.mark.parametrize(("fields", "told"), [chat[1:] for chat in CHATS], ids=[chat[0] for chat in CHATS])
async def test_items_for_the_template(within: Connect, fields: dict[str, Any], told: str) -> None:
    async with within(door := FakeDoor("a"), text()) as http:
        answer = await http.post(URL, json=fields)
    assert answer.status_code == 200, answer.text
    assert bytes(door.asked[0].prompt).decode() == f"{told}<assistant>"


IGNORED = {
    "store": True,
    "background": False,
    "previous_response_id": None,
    "conversation": None,
    "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "stream_options": {"include_obfuscation": False},
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "reasoning": {"summary": "detailed"},
    "truncation": "disabled",
    "tools": [],
    "tool_choice": "auto",
    "top_logprobs": 0,
    "max_tool_calls": 3,
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "safety_identifier": "s",
    "user": "u",
    "nobody_knows": 1,
    "typical_p": 1,
    "n": 1,
}


async def test_what_changes_no_answer(within: Connect) -> None:
    async with within(door := FakeDoor("Hello")) as http:
        answer = await http.post(URL, json=HI | IGNORED)
        alone = await http.post(URL, json=HI)
    assert answer.status_code == 200, answer.text
    assert answer.json()["output"][0]["content"] == alone.json()["output"][0]["content"]
    assert answer.json()["store"] is False
    first, second = door.asked
    assert (first.prompt, first.sampling, first.stop_ids) == (second.prompt, second.sampling, frozenset([EOS]))


def items(*after: Any) -> dict[str, Any]:
    return {"input": [said("a"), *after]}


KEPT = "is not supported: this server keeps no responses; send the whole conversation as input"
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"input": None}, "input", "input: "),
    ({"input": []}, "input", "input: "),
    ({"input": "\ud800"}, "input", "input.0.message.content: "),
    (items(said("b", "tool")), "input", "input.1.message.role: "),
    (items(said(None)), "input", "input.1.message.content: "),
    (items({"type": "item_reference", "id": "msg_1"}), "input", "input.1: items can't be referred to"),
    (items({"id": "msg_1"}), "input", "input.1: items can't be referred to"),
    (items({"type": "web_search_call"}), "input", "input.1: items of type 'web_search_call' are not supported"),
    (items({"type": "custom_tool_call"}), "input", "input.1: items of type 'custom_tool_call' are not supported"),
    (items(RESULT | {"call_id": None}), "input", "input.1.function_call_output.call_id: "),
    (
        items(said([*words("b"), {"type": "input_image", "image_url": "x"}])),
        "input",
        "input.1.message.content.1: parts of type 'input_image' are not supported, only text",
    ),
    (
        items(said([{"type": "input_file", "file_id": "x"}])),
        "input",
        "input.1.message.content.0: parts of type 'input_file' are not supported, only text",
    ),
    (
        items(RESULT | {"output": [{"type": "input_image"}]}),
        "input",
        "input.1.function_call_output.output.0: parts of type 'input_image' are not supported",
    ),
    ({"tools": [TOOL, {"type": "web_search"}]}, "tools", "tools.1: tools of type 'web_search' are not supported"),
    ({"tools": [{"type": "file_search"}]}, "tools", "tools.0: tools of type 'file_search' are not supported"),
    ({"tools": [{"type": "code_interpreter"}]}, "tools", "tools.0: tools of type 'code_interpreter'"),
    ({"tools": [{"type": "mcp", "server_label": "l"}]}, "tools", "tools.0: tools of type 'mcp' are not supported"),
    ({"tools": [{"type": "custom", "name": "c"}]}, "tools", "tools.0: tools of type 'custom' are not supported"),
    ({"tools": [TOOL, TOOL]}, "tools.1.name", "tools.1.name: 'dir' is there twice"),
    ({"tools": [TOOL | {"name": ""}]}, "tools", "tools.0.name: "),
    ({"tool_choice": "required"}, "tool_choice", "tool_choice asks for a call, but there are no tools"),
    ({"tool_choice": "perhaps"}, "tool_choice", 'tool_choice: must be "none"'),
    ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice", 'tool_choice: must be "none"'),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "x"}},
        "tool_choice",
        "tool_choice names 'x', which is none of the tools",
    ),
    ({"previous_response_id": "resp_1"}, "previous_response_id", f"previous_response_id {KEPT}"),
    ({"conversation": {"id": "conv_1"}}, "conversation", f"conversation {KEPT}"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt", f"prompt {KEPT}"),
    ({"background": True}, "background", f"background {KEPT}"),
    ({"truncation": "auto"}, "truncation", "truncation auto is not supported"),
    ({"max_completion_tokens": 5}, "max_completion_tokens", "max_completion_tokens is not supported here; send max_o"),
    ({"reasoning_effort": "low"}, "reasoning_effort", "reasoning_effort is not supported here; send reasoning.effort"),
    ({"logprobs": True}, "logprobs", "logprobs is not supported here; send include"),
    ({"n": 2}, "n", "n is not supported"),
    ({"context_management": [{"type": "compaction"}]}, "context_management", "context_management is not supported"),
    ({"moderation": {}}, "moderation", "moderation is not supported"),
    ({"tfs_z": 0.5}, "tfs_z", "tfs_z is not supported"),
    ({"top_logprobs": 21}, "top_logprobs", "top_logprobs: "),
    ({"max_output_tokens": -2}, "max_output_tokens", "max_output_tokens must be between"),
    ({"max_output_tokens": "9"}, "max_output_tokens", "max_output_tokens: "),
    ({"temperature": -1}, "temperature", "temperature must be between"),
    ({"metadata": {"a": 1}}, "metadata", "metadata.a: "),
    ({"text": {"format": {"type": "xml"}}}, "text", "text.format.type: "),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "text.format.schema is missing"),
    (
        {"text": {"format": {"type": "json_schema", "schema": {"type": "x"}}}},
        "text.format.schema",
        "text.format.schema is no JSON Schema",
    ),
    (
        {"text": {"format": {"type": "json_object"}}, "grammar": 'root ::= "a"'},
        "grammar",
        "grammar can't be combined with text.format",
    ),
    ({"input": "x" * N_CTX}, "input", "request (262 tokens) exceeds the available context size"),
]


@pytest.mark.parametrize(("fields", "param", "sentence"), REFUSED, ids=[sentence for _, _, sentence in REFUSED])
async def test_refused_by_name(within: Connect, fields: dict[str, Any], param: str, sentence: str) -> None:
    body = {name: value for name, value in (HI | fields).items() if value is not None}
    async with within(door := FakeDoor()) as http:
        answer = await http.post(URL, content=json.dumps(body))
    told = answer.json()
    assert (answer.status_code, door.asked) == (400, []), told
    assert told["error"]["message"].startswith(sentence)
    assert told["error"]["param"].startswith(param)


async def test_a_template_that_refuses_items(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.post(URL, json={"input": [RESULT]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")


async def test_another_model(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        for url in (URL, f"{URL}/input_tokens"):
            answer = await http.post(url, json=HI | {"model": "gpt-5"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")]
)
async def test_no_response_is_kept(within: Connect, method: str, path: str) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.request(method, f"{URL}/resp_1{path}")
    sentence = "there is no response 'resp_1': this server keeps none; a stream ends when it is closed"
    assert (answer.status_code, answer.json()["error"]["message"]) == (404, sentence)


async def test_defaults_of_the_server(within: Connect) -> None:
    defaults = RequestDefaults(max_tokens=2, temperature=0.5, reasoning_format="none")
    async with within(door := FakeDoor("abc"), text(), defaults=defaults) as http:
        told = (await http.post(URL, json=HI)).json()
        await http.post(URL, json=HI | {"max_output_tokens": 3})
    assert (told["max_output_tokens"], told["temperature"]) == (2, 0.5)
    assert [request.sampling.max_tokens for request in door.asked] == [2, 3]


async def test_nothing_is_compacted(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        answer = await http.post(f"{URL}/compact", json={"model": "toy", "input": "Hi"})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith("POST /v1/responses/compact is not supported")
