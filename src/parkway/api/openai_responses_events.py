"""Frames of the Responses API's events: named as their types, and numbered from 0. Knows no event's content."""

from collections.abc import Mapping
from typing import Any

from parkway.api.sse import TEXT_MARK, encode


class Events:
    """Those of one stream. One that is prepared costs the encoding of its text only, however often it is told."""

    def __init__(self) -> None:
        self._count = 0
        self._prepared = b"", b"", b""

    def frame(self, kind: str, content: Mapping[str, Any]) -> bytes:
        number = self._count
        self._count = number + 1
        return _head(kind) + b"%d" % number + _rest(content)

    def prepare(self, kind: str, content: Mapping[str, Any]) -> None:
        """`content` has a TEXT_MARK where the text will be."""
        before, after = _rest(content).split(encode(TEXT_MARK))
        self._prepared = _head(kind), before, after

    def prepared(self, text: str) -> bytes:
        head, before, after = self._prepared
        number = self._count
        self._count = number + 1
        return b"%b%d%b%b%b" % (head, number, before, encode(text), after)


def _head(kind: str) -> bytes:
    name = kind.encode()
    return b'event: %b\ndata: {"type":"%b","sequence_number":' % (name, name)


def _rest(content: Mapping[str, Any]) -> bytes:
    return b"," + encode(content)[1:] + b"\n\n"
