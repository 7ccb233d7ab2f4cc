"""Chats over a fake door for clients of the Responses API, and their streams taken apart and put together."""

import json
from typing import Any

URL = "/v1/responses"
HI: dict[str, Any] = {"input": "Hi", "seed": 5}
STREAM = HI | {"stream": True}
NEVER_PARKED = {"parks": 0, "recomputes": 0, "parked_ms": 0}
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "dir",
    "description": "d",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    "strict": False,
}
ENDS = ("response.completed", "response.incomplete", "response.failed")


def events(stream: str) -> list[dict[str, Any]]:
    """Of a stream without comments; each is named as its type, and they are numbered."""
    *frames, rest = stream.split("\n\n")
    assert rest == ""
    told = []
    for frame in frames:
        name, content = frame.split("\n")
        told.append(json.loads(content.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    return told


def kinds(told: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in told]


def assembled(told: list[dict[str, Any]]) -> dict[str, Any]:
    """The response that a stream's events amount to, what they say twice compared."""
    created, in_progress, *within, end = told
    assert kinds(told)[:2] == ["created", "in_progress"]
    assert created["response"] == in_progress["response"]
    items: list[dict[str, Any]] = []
    for event in within:
        index = event.pop("output_index")
        if event["type"] == "response.output_item.added":
            assert index == len(items)
            items.append(event["item"])
        else:
            assert index == len(items) - 1
            _take(items[-1], event)
    assert end["type"] in ENDS
    assert end["response"]["output"] == items
    assert end["response"].keys() >= created["response"].keys()
    response: dict[str, Any] = end["response"]
    return response


def _take(item: dict[str, Any], event: dict[str, Any]) -> None:
    kind = event["type"].removeprefix("response.")
    if kind == "output_item.done":
        assert event["item"] | {"status": "in_progress"} == item
        item["status"] = event["item"]["status"]
        return
    assert event["item_id"] == item["id"]
    if kind.startswith("function_call_arguments"):
        _take_arguments(item, kind, event)
        return
    assert event["content_index"] == 0
    if kind == "content_part.added":
        item["content"].append(event["part"])
        return
    [part] = item["content"]
    if kind == "content_part.done":
        assert event["part"] == part
        return
    assert kind.startswith(part["type"])
    if kind.endswith(".delta"):
        part["text"] += event["delta"]
        if "logprobs" in part:
            part["logprobs"] += event["logprobs"]
    else:
        assert {name: event[name] for name in ("text", "logprobs") if name in event} == {
            name: part[name] for name in ("text", "logprobs") if name in part
        }


def _take_arguments(item: dict[str, Any], kind: str, event: dict[str, Any]) -> None:
    if kind.endswith(".delta"):
        item["arguments"] += event["delta"]
    else:
        assert (event["arguments"], event["name"]) == (item["arguments"], item["name"])


def without_ids(response: dict[str, Any]) -> dict[str, Any]:
    """A response without what differs from answer to answer."""
    for name in ("id", "created_at", "completed_at"):
        del response[name]
    for item in response["output"]:
        del item["id"]
        item.pop("call_id", None)
    return response


def message(text: str, status: str = "completed") -> dict[str, Any]:
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"type": "message", "status": status, "role": "assistant", "content": [part]}


def thought(text: str, status: str = "completed") -> dict[str, Any]:
    part = {"type": "reasoning_text", "text": text}
    return {"type": "reasoning", "status": status, "summary": [], "content": [part]}


def called(arguments: str, status: str = "completed") -> dict[str, Any]:
    return {"type": "function_call", "status": status, "name": "dir", "arguments": arguments}
