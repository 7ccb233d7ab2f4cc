"""Chats over a fake door for Anthropic's clients: a template with thoughts and tools, and streams taken apart."""

import json
from typing import Any

from parkway.text import ModelText
from tests.api.fake import byte_text

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
HI: dict[str, Any] = {"max_tokens": 200, "messages": [{"role": "user", "content": "Hi"}], "seed": 5}
STREAM = HI | {"stream": True}
NEVER: dict[str, Any] = {"container": None, "stop_details": None}
NEVER_USED = dict.fromkeys(
    ("cache_creation", "server_tool_use", "service_tier", "inference_geo", "output_tokens_details")
)
NEVER_PARKED = {"parks": 0, "recomputes": 0, "parked_ms": 0}
TOOL = {"name": "dir", "description": "d", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}

THOUGHT = "<think>\nhm, so\n</think>\n\n"
CALL = '<tool_call>\n{"name": "dir", "arguments": {"at": "/é"}}\n</tool_call>'

_TEMPLATE = """
{#- <tool_call> <think> </think> -#}
{%- for t in tools or [] %}+{{ t.function.name }}{% endfor -%}
{%- for m in messages -%}
<{{ m.role }}{{ ' ' ~ m.tool_call_id if m.tool_call_id }}{{ ' ' ~ m.name if m.name }}>
{%- if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif -%}
{{ m.content }}
{%- for c in m.tool_calls %}!{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor -%}
{%- endfor -%}
{%- if add_generation_prompt %}<assistant>{% endif -%}
{%- if enable_thinking is defined %}{{ 'think' if enable_thinking else 'nothink' }}{% endif -%}
{{ reasoning_effort or '' }}
"""


def text() -> ModelText:
    """Speaks Hermes's dialect, thoughts and calls; tells in the prompt all that it is told."""
    return byte_text(_TEMPLATE)


def text_block(text: str) -> dict[str, Any]:
    """A block of an answer's text."""
    return {"type": "text", "text": text, "citations": []}


def events(stream: str) -> list[dict[str, Any]]:
    """Of a stream without comments; each is named as its type."""
    *frames, rest = stream.split("\n\n")
    assert rest == ""
    told = []
    for frame in frames:
        name, content = frame.split("\n")
        told.append(json.loads(content.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


def assembled(told: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream's events amount to."""
    first, *within, last, _ = told
    message: dict[str, Any] = first["message"]
    blocks: list[dict[str, Any]] = []
    for event in within:
        if event["type"] == "content_block_start":
            blocks.append(event["content_block"] | {"partial_json": ""})
        elif event["type"] == "content_block_delta":
            kind, field = _FIELDS[event["delta"]["type"]]
            assert (event["index"], kind) == (len(blocks) - 1, blocks[-1]["type"])
            blocks[-1][field] += event["delta"][field]
    for index, block in enumerate(blocks):
        arguments = block.pop("partial_json")
        blocks[index] = block | ({"input": json.loads(arguments)} if arguments else {})
    return message | {"content": blocks, "usage": last["usage"], "preempt": last["preempt"], **last["delta"]}


_FIELDS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}
