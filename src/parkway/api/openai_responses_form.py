"""OpenAI's JSON for a response: its stream of numbered events, or its whole body. Knows no engine and no route.

Parkway's own fields, which clients keep and don't read: `parkway`, the seed, in every response; `preempt`, how often
the chat was parked, in one that is over.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from parkway.api.answer import Answer
from parkway.api.choice import Delta
from parkway.api.failures import error_body
from parkway.api.openai_responses_events import Events
from parkway.api.openai_responses_output import Item, Output, TextLogprobs, new_id
from parkway.api.sse import KEEPALIVE, PING, TEXT_MARK, comment, encode
from parkway.config import Notices
from parkway.errors import ParkwayError
from parkway.request import Notice
from parkway.text import Tokenizer
from parkway.text.parts import Part

_TEXTS = {
    "message": "response.output_text",
    "reasoning": "response.reasoning_text",
    "function_call": "response.function_call_arguments",
}
"""What the events are named that tell an item's text."""
_GOES_ON = {"message": "content", "reasoning": "reasoning", "function_call": "arguments"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What the form of one answer depends on beside the answer itself. `request`: what it says of its request."""

    model: str
    tokenizer: Tokenizer
    logprobs: bool
    notices: Notices
    request: Mapping[str, Any]


class ResponseForm:
    keepalive = KEEPALIVE
    ping = PING

    def __init__(self, manner: Manner, answer: Answer) -> None:
        self._manner = manner
        self._answer = answer
        self._head = {
            "id": new_id("resp"),
            "object": "response",
            "created_at": int(time.time()),
            "model": manner.model,
            "parkway": {"seed": answer.seed},
            **manner.request,
        }
        self._output = Output()
        self._logprobs = TextLogprobs(manner.tokenizer)
        self._finish_reason: str | None = None
        self._events = Events()
        self._goes_on = ""
        """What kind of part has only its text told, as part of the item that grows."""
        self._texts: list[str] = []

    @property
    def tells_parks(self) -> bool:
        return self._manner.notices != "off"

    def opening(self) -> bytes:
        told = {"response": self._response("in_progress")}
        return b"".join(self._events.frame(kind, told) for kind in ("response.created", "response.in_progress"))

    def frames(self, delta: Delta) -> bytes:
        """The frames of one delta; most are a text that goes on with an item, and those are cheap."""
        if delta.notice is not None:
            return self._notice_frames(delta.notice)
        if delta.parsed is None and delta.text and not delta.finish_reason and self._goes_on == "content":
            return self._text_frame(delta.text)
        self._logprobs.push(delta.rows)
        frames = b"".join([self._part_frames(part) for part in delta.parts])
        if delta.finish_reason:
            self._end(delta.finish_reason)
            frames += self._done(self._output.last)
        return frames

    def closing(self) -> bytes:
        response = self._whole()
        return self._events.frame(f"response.{response['status']}", {"response": response})

    def failed(self, failure: ParkwayError) -> bytes:
        """The error, also as the object that OpenAI's client raises, and the end that others wait for."""
        error = error_body(failure)["error"]
        told = {name: error[name] for name in ("code", "message", "param")}
        self._output.end("incomplete")
        response = self._response("failed", error=told | {"code": "server_error"}) | self._record()
        events = [("error", told | {"error": error}), ("response.failed", {"response": response})]
        return b"".join(self._events.frame(kind, content) for kind, content in events)

    def body(self, deltas: Sequence[Delta]) -> bytes:
        for delta in deltas:
            self._logprobs.push(delta.rows)
            for part in delta.parts:
                self._take(part)
        self._end(deltas[-1].finish_reason)
        return encode(self._whole())

    def failure_body(self, failure: ParkwayError) -> bytes:
        return encode(error_body(failure))

    def _part_frames(self, part: Part) -> bytes:
        if part.kind == self._goes_on:
            return self._text_frame(part.text)
        last = self._output.last
        item, logprobs = self._take(part)
        begun = b"" if item is last else self._done(last) + self._added(item)
        if self._manner.logprobs:
            self._goes_on = ""
        if part.kind == "call":
            return begun
        if not logprobs:
            return begun + self._events.prepared(part.text)
        told = _place(item) | {"delta": part.text, "logprobs": logprobs}
        return begun + self._events.frame(f"{_TEXTS[item.kind]}.delta", told)

    def _text_frame(self, text: str) -> bytes:
        self._texts.append(text)
        return self._events.prepared(text)

    def _take(self, part: Part) -> tuple[Item, list[dict[str, Any]]]:
        """The part's item, to which its text was added, and the log-probabilities of that."""
        item = self._output.item_of(part)
        if part.kind != "call":
            item.texts.append(part.text)
        if part.kind != "content":
            self._logprobs.drop()
        if part.kind != "content" or not self._manner.logprobs:
            return item, []
        logprobs = self._logprobs.of(part.text)
        item.logprobs += logprobs
        return item, logprobs

    def _end(self, finish_reason: str | None) -> None:
        self._finish_reason = finish_reason
        self._output.end("incomplete" if finish_reason == "length" else "completed")

    def _added(self, item: Item) -> bytes:
        begun = {"output_index": item.index, "item": item.begun()}
        frames = self._events.frame("response.output_item.added", begun)
        place = _place(item)
        self._events.prepare(f"{_TEXTS[item.kind]}.delta", place | {"delta": TEXT_MARK} | _scores(item, []))
        self._goes_on, self._texts = _GOES_ON[item.kind], item.texts
        if item.kind == "function_call":
            return frames
        return frames + self._events.frame("response.content_part.added", place | {"part": item.part("", [])})

    def _done(self, item: Item | None) -> bytes:
        if item is None:
            return b""
        text, place = item.text, _place(item)
        whole = {"output_index": item.index, "item": item.told()}
        last = ("response.output_item.done", whole)
        if item.kind == "function_call":
            told = place | {"name": item.name, "arguments": text}
            events = [("response.function_call_arguments.done", told), last]
        else:
            told = place | {"text": text} | _scores(item, item.logprobs)
            part = place | {"part": item.part(text, item.logprobs)}
            events = [(f"{_TEXTS[item.kind]}.done", told), ("response.content_part.done", part), last]
        return b"".join(self._events.frame(kind, content) for kind, content in events)

    def _notice_frames(self, notice: Notice) -> bytes:
        """A comment and, if chunks were asked for, the one event of a response that may be told at any time."""
        if not self.tells_parks:
            return b""
        frames = comment(notice.state)
        if self._manner.notices == "chunks":
            told = {"response": self._response("in_progress"), "parkway": msgspec.structs.asdict(notice)}
            frames += self._events.frame("response.in_progress", told)
        return frames

    def _whole(self) -> dict[str, Any]:
        """The response that is over."""
        if self._finish_reason == "length":
            why = {"incomplete_details": {"reason": "max_output_tokens"}}
            return self._response("incomplete", **why) | self._record()
        return self._response("completed", completed_at=int(time.time())) | self._record()

    def _response(self, status: str, **more: Any) -> dict[str, Any]:
        told = {"status": status, "error": None, "incomplete_details": None, "completed_at": None, "usage": None}
        return self._head | told | more | {"output": self._output.told()}

    def _record(self) -> dict[str, Any]:
        answer = self._answer
        usage = {
            "input_tokens": answer.prompt_tokens,
            "input_tokens_details": {"cached_tokens": answer.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": answer.answer_tokens,
            "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
            "total_tokens": answer.prompt_tokens + answer.answer_tokens,
        }
        return {"usage": usage, "preempt": msgspec.structs.asdict(answer.preempt)}


def _scores(item: Item, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    """… and if that is what is said."""
    return {"logprobs": logprobs} if item.kind == "message" else {}


def _place(item: Item) -> dict[str, Any]:
    """What every event tells that is about an item's text."""
    place = {"item_id": item.id, "output_index": item.index}
    return place if item.kind == "function_call" else place | {"content_index": 0}
