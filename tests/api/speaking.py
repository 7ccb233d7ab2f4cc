"""A text side whose template tells of tools and thoughts, and what clients make of streams and bodies."""

import json
from typing import Any

from parkway.text import ModelText
from tests.api.fake import byte_text

TEMPLATE = (
    "{% if tools %}[{% for t in tools %}{{ t.function.name }} {% endfor %}]{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} {{ c.function.arguments.city }}{% endfor %}"
    "{% if m.tool_call_id %}#{{ m.tool_call_id }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking %}<think>{% endif %}{% endif %}"
    "{% if reasoning_effort %}{{ reasoning_effort }}{% endif %}{{ extra or '' }}{# </think> <tool_call> #}"
)
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TIME = {"type": "function", "function": {"name": "time"}}


def speaking() -> ModelText:
    """Thinks and calls as Hermes; <think> and </think> are special tokens 257 and 258."""
    return byte_text(TEMPLATE, ["<think>", "</think>"])


def call(name: str, **arguments: Any) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def ids(text: str) -> list[int]:
    return speaking().tokenizer.encode(text)


def chunks(text: str) -> list[dict[str, Any]]:
    frames = [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame]
    assert frames.pop() == "[DONE]"
    return [json.loads(frame) for frame in frames]


def gathered(text: str) -> list[dict[str, Any]]:
    """The choices of a stream as those of a whole body, put together as clients do."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks(text):
        for told in chunk["choices"]:
            index = told["index"]
            choice = choices.setdefault(index, {"index": index, "message": {"content": ""}, "logprobs": None})
            _add(choice["message"], told["delta"])
            _add_rows(choice, told["logprobs"])
            choice["finish_reason"] = told["finish_reason"]
    return [choices[index] for index in sorted(choices)]


def whole(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of a body without what differs from answer to answer."""
    for choice in body["choices"]:
        message = choice["message"]
        message["content"] = message["content"] or ""
        del message["role"], message["refusal"]
        for each in message.get("tool_calls", []):
            assert each.pop("id").startswith("call_")
    choices: list[dict[str, Any]] = body["choices"]
    return choices


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("content", "reasoning_content"):
        if delta.get(name):
            message[name] = message.get(name, "") + delta[name]
    for piece in delta.get("tool_calls", []):
        calls = message.setdefault("tool_calls", [])
        if "id" in piece:
            assert piece["index"] == len(calls)
            calls.append({"type": piece["type"], "function": dict(piece["function"])})
        else:
            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]


def _add_rows(choice: dict[str, Any], logprobs: dict[str, Any] | None) -> None:
    if logprobs is not None:
        rows = choice["logprobs"] or {"content": [], "refusal": None}
        choice["logprobs"] = {"content": rows["content"] + logprobs["content"], "refusal": None}
