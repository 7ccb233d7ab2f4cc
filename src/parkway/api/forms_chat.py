"""OpenAI's JSON for a chat's choices: content, `reasoning_content` (as llama-server), tool calls. Knows no engine."""

import uuid
from collections.abc import Sequence
from typing import Any

from parkway.api.choice import Delta
from parkway.api.forms import OpenAIForm
from parkway.api.logprobs import Row, chat_logprobs
from parkway.api.message import Call, message_of
from parkway.api.sse import event
from parkway.text.parts import Part


class ChatForm(OpenAIForm):
    prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> bytes:
        role = {"role": "assistant", "content": ""}
        return b"".join(event(self._chunk(_chunk_choice(i, role, None, None))) for i in self._indices)

    def choice(self, deltas: Sequence[Delta], logprobs: Any) -> dict[str, Any]:
        last = deltas[-1]
        message = self._message([part for delta in deltas for part in self._told(delta)])
        return {"index": last.choice, "message": message, "logprobs": logprobs, "finish_reason": last.finish_reason}

    def chunk_choice(self, index: int, part: Part | None, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        return _chunk_choice(index, {} if part is None else _delta(part), logprobs, finish_reason)

    def logprobs(self, choice: int, rows: list[Row]) -> dict[str, Any]:
        return chat_logprobs(rows, self._style.tokenizer)

    def _message(self, parts: list[Part]) -> dict[str, Any]:
        whole = message_of(parts)
        content = None if whole.calls and not whole.content else whole.content
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if whole.reasoning:
            message["reasoning_content"] = whole.reasoning
        if whole.calls:
            message["tool_calls"] = [_call(call) for call in whole.calls]
        return message


def _call(call: Call) -> dict[str, Any]:
    return {"id": new_call_id(), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def _delta(part: Part) -> dict[str, Any]:
    if part.kind == "content":
        return {"content": part.text}
    if part.kind == "reasoning":
        return {"reasoning_content": part.text}
    call = {"index": part.call}
    if part.kind == "call":
        return {"tool_calls": [call | _call(Call(part.text))]}
    return {"tool_calls": [call | {"function": {"arguments": part.text}}]}


def _chunk_choice(index: int, delta: dict[str, Any], logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
