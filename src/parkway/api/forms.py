"""OpenAI's JSON for answers: chunks of a stream and whole bodies, for chats and for completions. Knows no engine.

The seed is told as `parkway: {"seed": …}` in a whole body, and in a stream in every chunk with a finish reason.
How often the chats were parked is told once, summed, as `preempt: {…}`: in a whole body, and in a stream in the chunk
with the finish reason of the choice that ends last. OpenAI's clients keep such fields and read none of them.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from parkway.api.answer import Answer, Delta
from parkway.api.logprobs import CompletionRows, Row, chat_logprobs
from parkway.api.sse import DONE, TEXT_MARK, comment, encode, event, split
from parkway.config import Notices
from parkway.request import Notice
from parkway.text import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What the form of one answer depends on beside the answer itself."""

    model: str
    fingerprint: str
    tokenizer: Tokenizer
    logprobs: bool
    include_usage: bool
    notices: Notices


class _Form:
    """Chunks and bodies of one answer; the two kinds say how a choice looks."""

    prefix: str
    object: str
    chunk_object: str

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
        self._split_chunks: dict[int, tuple[bytes, bytes]] = {}

    @property
    def tells_parks(self) -> bool:
        return self._style.notices != "off"

    def opening(self) -> bytes:
        """The frames that go out with the headers."""
        raise NotImplementedError

    def choice(self, index: int, text: str, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        raise NotImplementedError

    def chunk_choice(self, index: int, text: str | None, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        """`text` is None in the chunk that only tells the finish reason."""
        raise NotImplementedError

    def logprobs(self, choice: int, rows: list[Row]) -> dict[str, Any]:
        raise NotImplementedError

    def frames(self, delta: Delta) -> bytes:
        """The frames of one delta; most are a text and nothing else, and those are cheap."""
        if not (delta.rows or delta.finish_reason):
            if delta.text:
                return self._text_frame(delta.choice, delta.text)
            return b"" if delta.notice is None else self._notice_frames(delta.choice, delta.notice)
        frames = b""
        if delta.text or delta.rows:
            frames = event(self._chunk(self.chunk_choice(delta.choice, delta.text, self._logprobs(delta), None)))
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

    def body(self, deltas: Sequence[Delta]) -> bytes:
        """The whole answer out of everything that came."""
        parts: list[list[Delta]] = [[] for _ in self._indices]
        for delta in deltas:
            parts[delta.choice].append(delta)
        choices = [self._whole_choice(each) for each in parts]
        head = self._head | {"object": self.object}
        return encode(head | {"choices": choices, "usage": self._usage()} | self._seed | self._record())

    @property
    def _indices(self) -> range:
        return range(len(self._answer.choices))

    def _text_frame(self, choice: int, text: str) -> bytes:
        parts = self._split_chunks.get(choice)
        if parts is None:
            parts = split(self._chunk(self.chunk_choice(choice, TEXT_MARK, None, None)))
            self._split_chunks[choice] = parts
        return parts[0] + encode(text) + parts[1]

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
        return {"preempt": msgspec.structs.asdict(self._answer.preempt)}

    def _whole_choice(self, deltas: list[Delta]) -> dict[str, Any]:
        last = deltas[-1]
        whole = last._replace(text="".join(d.text for d in deltas), rows=[row for d in deltas for row in d.rows])
        return self.choice(last.choice, whole.text, self._logprobs(whole), last.finish_reason)

    def _logprobs(self, delta: Delta) -> dict[str, Any] | None:
        return self.logprobs(delta.choice, delta.rows) if self._style.logprobs else None

    def _chunk(self, *choices: dict[str, Any]) -> dict[str, Any]:
        usage = {"usage": None} if self._style.include_usage else {}
        return self._head | {"object": self.chunk_object, "choices": choices} | usage

    def _usage(self) -> dict[str, Any]:
        prompt, answer = self._answer.prompt_tokens, self._answer.answer_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
            "prompt_tokens_details": {"cached_tokens": self._answer.cached_tokens},
        }


class ChatForm(_Form):
    prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> bytes:
        role = {"role": "assistant", "content": ""}
        return b"".join(event(self._chunk(_chat_chunk_choice(i, role, None, None))) for i in self._indices)

    def choice(self, index: int, text: str, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish_reason}

    def chunk_choice(self, index: int, text: str | None, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        delta = {} if text is None else {"content": text}
        return _chat_chunk_choice(index, delta, logprobs, finish_reason)

    def logprobs(self, choice: int, rows: list[Row]) -> dict[str, Any]:
        return chat_logprobs(rows, self._style.tokenizer)


class CompletionForm(_Form):
    prefix = "cmpl"
    object = chunk_object = "text_completion"

    def __init__(self, style: Style, answer: Answer) -> None:
        super().__init__(style, answer)
        self._rows = [CompletionRows(style.tokenizer) for _ in answer.choices]

    def opening(self) -> bytes:
        return b""

    def choice(self, index: int, text: str, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}

    def chunk_choice(self, index: int, text: str | None, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        return self.choice(index, text or "", logprobs, finish_reason)

    def logprobs(self, choice: int, rows: list[Row]) -> dict[str, Any]:
        return self._rows[choice].take(rows)


def _chat_chunk_choice(index: int, delta: dict[str, str], logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
