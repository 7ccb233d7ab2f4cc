"""Anthropic's client for Python."""

import json
from typing import Any

from anthropic import Anthropic

from tests.clients.python.scenarios import PARAMETERS, SCHEMA, Made, main

_ENDS = {"end_turn": "stop", "tool_use": "tool_calls"}


class Messages:
    def __init__(self, url: str) -> None:
        self._sdk = Anthropic(api_key="none", base_url=url, max_retries=0, timeout=30)

    def stream(self, say: str, *, tools: bool) -> Made:
        with self._sdk.messages.stream(**_asked(say, tools)) as stream:
            return _made(stream.get_final_message())

    def whole(self, say: str, *, tools: bool) -> Made:
        return _made(self._sdk.messages.create(**_asked(say, tools)))

    def typed(self, say: str) -> Any:
        form: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
        return json.loads(_made(self._sdk.messages.create(**_asked(say, False), output_config=form))["text"])

    def leave(self, say: str) -> str:
        with self._sdk.messages.stream(**_asked(say, False)) as stream:
            return next(stream.text_stream)


def _asked(say: str, tools: bool) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": "claude-any", "max_tokens": 200, "messages": [{"role": "user", "content": say}]}
    return asked | ({"tools": [{"name": "dir", "description": "d", "input_schema": PARAMETERS}]} if tools else {})


def _made(message: Any) -> Made:
    calls = [block for block in message.content if block.type == "tool_use"]
    return {
        "text": "".join(block.text for block in message.content if block.type == "text"),
        "calls": [{"name": call.name, "arguments": call.input} for call in calls],
        "thought": "".join(block.thinking for block in message.content if block.type == "thinking") or None,
        "end": _ENDS[message.stop_reason],
    }


if __name__ == "__main__":
    main({"anthropic": Messages})
