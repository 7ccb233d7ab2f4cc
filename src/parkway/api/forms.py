"""What the two of OpenAI's forms share: heads, usage, records, frames of a stream. Knows no engine.

The seed is told as `parkway: {"seed": …}` in a whole body, and in a stream in every chunk with a finish reason.
How often the chats were parked is told once, summed, as `preempt: {…}`: in a whole body, and in a stream in the chunk
with the finish reason of the choice that ends last; llama-server's `timings` are beside it. OpenAI's clients keep such
fields and read none of them.
"""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from parkway.api.answer import Answer
from parkway.api.choice import Delta
from parkway.api.failures import error_body
from parkway.api.logprobs import Row
from parkway.api.sse import DONE, KEEPALIVE, PING, TEXT_MARK, comment, encode, event, split
from parkway.config import Notices
from parkway.errors import ParkwayError
from parkway.request import Notice
from parkway.text import Tokenizer
from parkway.text.parts import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What the form of one answer depends on beside the answer itself.

    `counting`: every chunk tells the usage so far (vLLM's continuous_usage_stats). `timing`: … the timings so far
    (llama-server's timings_per_token). `thoughts`: whether they are told.
    """

    model: str
    fingerprint: str
    tokenizer: Tokenizer
    logprobs: bool
    include_usage: bool
    notices: Notices
    counting: bool = False
    timing: bool = False
    thoughts: bool = True


class OpenAIForm(ABC):
    """Chunks and bodies of one answer; the two kinds say how a choice looks."""

    prefix: str
    object: str
    chunk_object: str
    keepalive = KEEPALIVE
    ping = PING

    def __init__(self, style: Style, answer: Answer) -> None:
        self._style = style
        self._answer = answer
        self._head = {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": style.model,
            "system_fingerprint": style.fingerprint,
        }
        self._seed = {"parkway": {"seed": answer.seed}}
        self._ended = 0
        self._may_split = not (style.counting or style.timing)
        self._split_chunks: dict[Hashable, tuple[bytes, bytes]] = {}

    @property
    def tells_parks(self) -> bool:
        return self._style.notices != "off"

    @abstractmethod
    def opening(self) -> bytes: ...

    @abstractmethod
    def choice(self, deltas: Sequence[Delta], logprobs: Any) -> dict[str, Any]:
        """A whole choice out of all its deltas."""

    @abstractmethod
    def chunk_choice(self, index: int, part: Part | None, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        """`part` is None in the chunk that only tells the finish reason."""

    @abstractmethod
    def logprobs(self, choice: int, rows: list[Row]) -> dict[str, Any]: ...

    def frames(self, delta: Delta) -> bytes:
        """The frames of one delta; most are a text and nothing else, and those are cheap."""
        if not (delta.rows or delta.finish_reason):
            if delta.text and delta.parsed is None:
                return self._text_frame(delta.choice, delta.text)
            if delta.notice is not None:
                return self._notice_frames(delta.choice, delta.notice)
            return b"".join([self._part_frame(delta.choice, part) for part in self._told(delta)])
        frames = self._part_frames(delta)
        if delta.finish_reason:
            last = self._chunk(self.chunk_choice(delta.choice, None, None, delta.finish_reason))
            self._ended += 1
            frames += event(last | self._seed | (self._record() if self._ended == len(self._indices) else {}))
        return frames

    def closing(self) -> bytes:
        """Usage, if it was asked for, and the end mark."""
        if not self._style.include_usage:
            return DONE
        return event(self._chunk() | {"usage": self._usage()}) + DONE

    def failed(self, failure: ParkwayError) -> bytes:
        return event(error_body(failure))

    def body(self, deltas: Sequence[Delta]) -> bytes:
        apart: list[list[Delta]] = [[] for _ in self._indices]
        for delta in deltas:
            apart[delta.choice].append(delta)
        choices = [self._whole_choice(each) for each in apart]
        head = self._head | {"object": self.object}
        return encode(head | {"choices": choices, "usage": self._usage()} | self._seed | self._record())

    def failure_body(self, failure: ParkwayError) -> bytes:
        return encode(error_body(failure))

    @property
    def _indices(self) -> range:
        return range(len(self._answer.choices))

    def _told(self, delta: Delta) -> list[Part]:
        parts = delta.parts
        return parts if self._style.thoughts else [part for part in parts if part.kind != "reasoning"]

    def _part_frames(self, delta: Delta) -> bytes:
        """The log-probabilities stand in the first, which is empty where there are rows and nothing to tell yet."""
        parts = self._told(delta) or ([Part("content", "")] if delta.rows else [])
        frames = b""
        for index, part in enumerate(parts):
            logprobs = None if index else self._logprobs(delta.choice, delta.rows)
            frames += event(self._chunk(self.chunk_choice(delta.choice, part, logprobs, None)))
        return frames

    def _text_frame(self, choice: int, text: str) -> bytes:
        cut = self._split_chunks.get(choice)
        if cut is None:
            return self._part_frame(choice, Part("content", text))
        return cut[0] + encode(text) + cut[1]

    def _part_frame(self, choice: int, part: Part) -> bytes:
        if part.kind == "call" or not self._may_split:
            return event(self._chunk(self.chunk_choice(choice, part, None, None)))
        key = choice if part.kind == "content" else (choice, part.kind, part.call)
        cut = self._split_chunks.get(key)
        if cut is None:
            cut = split(self._chunk(self.chunk_choice(choice, part._replace(text=TEXT_MARK), None, None)))
            self._split_chunks[key] = cut
        return cut[0] + encode(part.text) + cut[1]

    def _notice_frames(self, choice: int, notice: Notice) -> bytes:
        """A comment and, if chunks were asked for, a chunk without a choice.

        The comment says which prompt, unless it is the first. With several choices of a prompt, a client counts: as
        many are out as were preempted and not resumed. The chunk tells the choice's `index`.
        """
        if not self.tells_parks:
            return b""
        prompt = self._answer.choices[choice].request.prompt_index
        frames = comment(f"{notice.state} {prompt}" if prompt else notice.state)
        if self._style.notices == "chunks":
            frames += event(self._chunk() | {"parkway": {**msgspec.structs.asdict(notice), "index": choice}})
        return frames

    def _record(self) -> dict[str, Any]:
        return {"preempt": msgspec.structs.asdict(self._answer.preempt), "timings": timings(self._answer)}

    def _whole_choice(self, deltas: list[Delta]) -> dict[str, Any]:
        rows = [row for delta in deltas for row in delta.rows]
        return self.choice(deltas, self._logprobs(deltas[-1].choice, rows))

    def _logprobs(self, choice: int, rows: list[Row]) -> dict[str, Any] | None:
        return self.logprobs(choice, rows) if self._style.logprobs else None

    def _chunk(self, *choices: dict[str, Any]) -> dict[str, Any]:
        chunk = self._head | {"object": self.chunk_object, "choices": choices}
        if self._style.counting:
            chunk["usage"] = self._usage()
        elif self._style.include_usage:
            chunk["usage"] = None
        if self._style.timing:
            chunk["timings"] = timings(self._answer)
        return chunk

    def _usage(self) -> dict[str, Any]:
        prompt, answer = self._answer.prompt_tokens, self._answer.answer_tokens
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
            "prompt_tokens_details": {"cached_tokens": self._answer.cached_tokens},
        }
        if thoughts := self._answer.reasoning_tokens:
            usage["completion_tokens_details"] = {"reasoning_tokens": thoughts}
        return usage


def timings(answer: Answer) -> dict[str, float]:
    """llama-server's `timings`, of all choices together: the prompt's last until the first token, queueing included;
    the answer's from there on, parks included."""
    prompt = answer.prompt_tokens, answer.cached_tokens, answer.prompt_ms
    return rates(*prompt, answer.answer_tokens, answer.answer_ms)


def rates(prompt: int, cached: int, prompt_ms: float, tokens: int, answer_ms: float) -> dict[str, float]:
    """The same object out of these numbers, of which `prompt` are tokens, `cached` among them."""
    told: dict[str, float] = {"cache_n": cached}
    for name, count, ms in (("prompt", prompt - cached, prompt_ms), ("predicted", tokens, answer_ms)):
        told |= {f"{name}_n": count, f"{name}_ms": ms}
        told[f"{name}_per_token_ms"] = ms / count if count else 0.0
        told[f"{name}_per_second"] = count / ms * 1000 if ms else 0.0
    return told
