"""Frames for server-sent events: pure functions from content to bytes. Knows no stream and no choice."""

from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"
PING = b":\n\n"
KEEPALIVE = b": preempt-keepalive\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
TEXT_MARK = "\0text\0"
"""Stands for the text in the content given to `split`; JSON can't hold a bare NUL, so nothing else looks like it."""

encode = msgspec.json.Encoder().encode


def event(content: Any) -> bytes:
    """One frame. It ends in a plain blank line and has no id, on which several clients choke."""
    return b"data: " + encode(content) + b"\n\n"


def comment(text: str) -> bytes:
    """A frame that every client skips unless it looks for it."""
    return f": {text}\n\n".encode()


def split(content: Any) -> tuple[bytes, bytes]:
    """The frame of `content` before and after its TEXT_MARK, so that a token costs the encoding of its text only."""
    before, after = event(content).split(encode(TEXT_MARK))
    return before, after
