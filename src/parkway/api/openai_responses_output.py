"""The output of a response while it grows: items of parts, and whose log-probabilities are told. Knows no event."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from parkway.api.logprobs import Pieces, Row, chat_logprobs
from parkway.text.parts import Part

_KINDS = {"content": "message", "reasoning": "reasoning", "call": "function_call", "arguments": "function_call"}
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


@dataclass(slots=True)
class Item:
    """A message, a reasoning or a function_call, the one of `name`. `texts`: what came of it, in pieces."""

    index: int
    kind: str
    name: str
    id: str
    call_id: str
    status: str = "in_progress"
    texts: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def begun(self) -> dict[str, Any]:
        """The item before anything came of it."""
        item: dict[str, Any] = {"id": self.id, "type": self.kind, "status": "in_progress"}
        if self.kind == "function_call":
            return item | {"call_id": self.call_id, "name": self.name, "arguments": ""}
        own: dict[str, Any] = {"role": "assistant"} if self.kind == "message" else {"summary": []}
        return item | own | {"content": []}

    def told(self) -> dict[str, Any]:
        """The item as far as it has come."""
        item = self.begun() | {"status": self.status}
        if self.kind == "function_call":
            return item | {"arguments": self.text}
        return item | {"content": [self.part(self.text, self.logprobs)]}

    def part(self, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        """Its only part, of this text."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "annotations": [], "logprobs": logprobs, "text": text}


class Output:
    """The items of one answer. `last` is the one that grows."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.last: Item | None = None

    def item_of(self, part: Part) -> Item:
        """The item that a part belongs to, which may be a new one."""
        last, kind = self.last, _KINDS[part.kind]
        if last is None or last.kind != kind or part.kind == "call":
            self.end("completed")
            last = self.last = Item(len(self.items), kind, part.text, new_id(_PREFIXES[kind]), new_id("call"))
            self.items.append(last)
        return last

    def end(self, status: str) -> None:
        if self.last is not None:
            self.last.status = status

    def told(self) -> list[dict[str, Any]]:
        return [item.told() for item in self.items]


class TextLogprobs:
    """The log-probabilities of what is said: not of marks, thoughts and calls, nor of what ended the answer.

    A row comes with its token, which may be before its text, and no parser tells which tokens a text is of; so they
    are found by their bytes.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._waiting: list[Row] = []

    def push(self, rows: list[Row]) -> None:
        self._waiting += [row for row in rows if row.shown]

    def drop(self) -> None:
        """What has come was not said."""
        self._waiting.clear()

    def of(self, text: str) -> list[dict[str, Any]]:
        """Those of the text that is told next."""
        ends, joined = [0], b""
        for row in self._waiting:
            joined += self._pieces.piece_bytes(row.token_id)
            ends.append(len(joined))
        told = text.encode()
        at = max(joined.rfind(told), 0)
        first = max(index for index, end in enumerate(ends) if end <= at)
        last = next((index for index, end in enumerate(ends) if end >= at + len(told)), len(self._waiting))
        rows, self._waiting = self._waiting[first:last], self._waiting[last:]
        content: list[dict[str, Any]] = chat_logprobs(rows, self._pieces)["content"]
        return content
