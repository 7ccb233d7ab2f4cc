"""Anthropic's JSON for one answer: a message of blocks, streamed or whole. Knows no engine and no route.

A stream's first event can't tell yet how much of the prompt was not computed, so the last one tells the usage again.
Parkway's own fields, which clients keep and don't read: `parkway`, the seed, in the message; `preempt`, how often the
chat was parked, in a whole message and in a stream's message_delta.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic_core import from_json

from parkway.api.answer import Answer
from parkway.api.anthropic_failures import told
from parkway.api.choice import Delta
from parkway.api.failures import error_body, status_of
from parkway.api.sse import KEEPALIVE, TEXT_MARK, comment, encode, event, split
from parkway.config import Notices
from parkway.errors import ParkwayError
from parkway.request import Notice
from parkway.text.parts import Part

SIGNATURE = "parkway"
"""Of every thought. Clients need one to send a thought back with; here nobody checks it."""

_NEVER = {"container": None, "stop_details": None}
_NEVER_USED = {"cache_creation": None, "server_tool_use": None, "service_tier": None, "inference_geo": None}
"""Fields that every message of Anthropic's has; strict clients want them, here there is nothing to tell in them."""

_BLOCKS = {"content": "text", "reasoning": "thinking", "call": "tool_use", "arguments": "tool_use"}
_STOPS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What the form of one answer depends on beside the answer itself. `thoughts`: whether their text is told."""

    model: str
    request_id: str
    max_tokens: int
    notices: Notices
    thoughts: bool = True


def named(content: dict[str, Any]) -> bytes:
    """The frame of an event, which is named as its type."""
    return _name(content["type"]) + event(content)


def _name(kind: str) -> bytes:
    return b"event: %b\n" % kind.encode()


PING = named({"type": "ping"})


@dataclass(slots=True)
class _Open:
    """The block that is being streamed. `cut`: the frame of a delta, around its text."""

    index: int = -1
    kind: str = ""
    cut: tuple[bytes, bytes] = (b"", b"")


class MessageForm:
    keepalive = KEEPALIVE + PING
    """Clients' timers are reset by events, not all by comments."""
    ping = PING

    def __init__(self, manner: Manner, answer: Answer) -> None:
        self._manner = manner
        self._answer = answer
        self._id = f"msg_{uuid.uuid4().hex[:24]}"
        self._block = _Open()

    @property
    def tells_parks(self) -> bool:
        return self._manner.notices != "off"

    def opening(self) -> bytes:
        return named({"type": "message_start", "message": self._message([], None, None)})

    def frames(self, delta: Delta) -> bytes:
        if delta.notice is not None:
            return self._notice_frames(delta.notice)
        frames = b"".join([self._part_frames(part) for part in delta.parts])
        return frames + self._end(delta.finish_reason) if delta.finish_reason else frames

    def closing(self) -> bytes:
        return named({"type": "message_stop"})

    def failed(self, failure: ParkwayError) -> bytes:
        return named(self._error(failure))

    def body(self, deltas: Sequence[Delta]) -> bytes:
        content = _blocks((part for delta in deltas for part in delta.parts), thoughts=self._manner.thoughts)
        return encode(self._message(content, *self._stop(deltas[-1].finish_reason)) | self._record())

    def failure_body(self, failure: ParkwayError) -> bytes:
        return encode(self._error(failure))

    def _part_frames(self, part: Part) -> bytes:
        kind = _BLOCKS[part.kind]
        frames = b"" if kind == self._block.kind and part.kind != "call" else self._begin(kind, part)
        if part.kind == "call" or (kind == "thinking" and not self._manner.thoughts):
            return frames
        before, after = self._block.cut
        return frames + before + encode(part.text) + after

    def _begin(self, kind: str, part: Part) -> bytes:
        """The end of the block that is open, and the beginning of the next."""
        ended = self._end_block()
        index = self._block.index + 1
        delta = {"type": "content_block_delta", "index": index, "delta": _delta(kind, TEXT_MARK)}
        before, after = split(delta)
        self._block = _Open(index, kind, (_name("content_block_delta") + before, after))
        start = {"type": "content_block_start", "index": index, "content_block": _empty(kind, part.text)}
        return ended + named(start)

    def _end_block(self) -> bytes:
        index, kind = self._block.index, self._block.kind
        if not kind:
            return b""
        signed = b""
        if kind == "thinking":
            delta = {"type": "signature_delta", "signature": SIGNATURE}
            signed = named({"type": "content_block_delta", "index": index, "delta": delta})
        return signed + named({"type": "content_block_stop", "index": index})

    def _end(self, finish_reason: str) -> bytes:
        reason, sequence = self._stop(finish_reason)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        last = {"type": "message_delta", "delta": delta, "usage": self._usage()} | self._record()
        return self._end_block() + named(last)

    def _stop(self, finish_reason: str | None) -> tuple[str | None, str | None]:
        """Why the answer ended, and by which of the request's strings, if by one."""
        choice = self._answer.choices[0]
        if choice.stop_string is not None:
            return "stop_sequence", choice.stop_string
        if finish_reason == "length" and choice.answer_tokens < self._manner.max_tokens:
            return "model_context_window_exceeded", None
        return _STOPS[finish_reason or ""], None

    def _notice_frames(self, notice: Notice) -> bytes:
        """A comment and, if chunks were asked for, a ping that tells the same."""
        if not self.tells_parks:
            return b""
        frames = comment(notice.state)
        if self._manner.notices == "chunks":
            frames += named({"type": "ping", "parkway": msgspec.structs.asdict(notice)})
        return frames

    def _message(self, content: list[dict[str, Any]], reason: str | None, sequence: str | None) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._manner.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": self._usage(),
            "parkway": {"seed": self._answer.seed},
        } | _NEVER

    def _usage(self) -> dict[str, Any]:
        answer = self._answer
        thought = answer.reasoning_tokens
        return {
            "input_tokens": answer.prompt_tokens - answer.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": answer.cached_tokens,
            "output_tokens": answer.answer_tokens,
            "output_tokens_details": {"thinking_tokens": thought} if thought else None,
        } | _NEVER_USED

    def _record(self) -> dict[str, Any]:
        return {"preempt": msgspec.structs.asdict(self._answer.preempt)}

    def _error(self, failure: ParkwayError) -> dict[str, Any]:
        return told(error_body(failure)["error"], status_of(failure), self._manner.request_id)


def _blocks(parts: Iterable[Part], *, thoughts: bool) -> list[dict[str, Any]]:
    begun: list[tuple[dict[str, Any], list[str]]] = []
    for part in parts:
        kind = _BLOCKS[part.kind]
        if part.kind == "call" or not begun or begun[-1][0]["type"] != kind:
            begun.append((_empty(kind, part.text), []))
        if part.kind != "call":
            begun[-1][1].append(part.text)
    return [_filled(block, "".join(texts), thoughts=thoughts) for block, texts in begun]


def _empty(kind: str, name: str) -> dict[str, Any]:
    """A block as its stream begins it; `name` is that of a tool."""
    if kind == "text":
        return {"type": kind, "text": "", "citations": []}  # null is what Vercel's AI SDK does not take
    if kind == "thinking":
        return {"type": kind, "thinking": "", "signature": ""}
    call_id = f"toolu_{uuid.uuid4().hex[:24]}"
    return {"type": kind, "id": call_id, "name": name, "input": {}, "caller": {"type": "direct"}}


def _delta(kind: str, text: str) -> dict[str, str]:
    if kind == "tool_use":
        return {"type": "input_json_delta", "partial_json": text}
    return {"type": f"{kind}_delta", kind: text}


def _filled(block: dict[str, Any], text: str, *, thoughts: bool) -> dict[str, Any]:
    if block["type"] == "text":
        return block | {"text": text}
    if block["type"] == "thinking":
        return block | {"thinking": text if thoughts else "", "signature": SIGNATURE}
    return block | {"input": _object(text)}


def _object(text: str) -> dict[str, Any]:
    """A call's arguments; as much as is whole where the answer was cut, as clients read a stream that was."""
    try:
        read = from_json(text, allow_partial=True)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}
