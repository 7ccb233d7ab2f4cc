"""llama-server's JSON for the answers of /completion: chunks, last chunks, whole bodies. Knows no engine.

Beside its fields, the last chunk or body of each answer has our `preempt` record. There is no end mark.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from parkway.api.answer import Answer
from parkway.api.choice import Choice, Delta, Progress
from parkway.api.failures import error_body, status_of
from parkway.api.forms import rates
from parkway.api.llama_failures import told
from parkway.api.logprobs import Row
from parkway.api.sse import KEEPALIVE, PING, comment, encode, event
from parkway.config import Notices
from parkway.errors import ParkwayError
from parkway.request import Notice, TokenLogprob
from parkway.text import Tokenizer

_LOWEST = -3.4028234663852886e38
"""In place of -inf, which JSON doesn't have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What the form depends on beside the answer. `slot_of` tells the slot of an open request, -1 if unknown.

    `n_ctx`: most tokens of a chat; where it `shifts`, at once. `tokens`: a whole body tells them. `fields`: those of
    the last chunk or whole body that are wanted, as paths with slashes; none: all.
    """

    model: str
    tokenizer: Tokenizer
    settings: dict[str, Any]
    n_ctx: int
    shifts: bool
    notices: Notices
    slot_of: Callable[[int], int]
    timing: bool = False
    tokens: bool = False
    fields: Sequence[str] = ()


class LlamaForm:
    keepalive = KEEPALIVE
    ping = PING

    def __init__(self, manner: Manner, answer: Answer) -> None:
        self._manner = manner
        self._answer = answer
        self._streams = [_Streamed() for _ in answer.choices]

    @property
    def tells_parks(self) -> bool:
        return self._manner.notices != "off"

    def opening(self) -> bytes:
        return b""

    def frames(self, delta: Delta) -> bytes:
        """Nothing where all text is held back: its tokens come with it."""
        index, streamed = delta.choice, self._streams[delta.choice]
        if delta.notice is not None:
            return self._notice_frames(index, delta.notice)
        if delta.progress is not None:
            return event(self._chunk(index, "", []) | {"prompt_progress": _progress(delta.progress)})
        streamed.add(delta)
        frames = b""
        if delta.text or (delta.finish_reason and streamed.held):
            frames = event(self._text_chunk(index, delta.text, *streamed.take()))
        if delta.finish_reason:
            frames += event(self._selected(self._last(index, "", [], has_new_line=streamed.has_new_line)))
        return frames

    def closing(self) -> bytes:
        return b""

    def failed(self, failure: ParkwayError) -> bytes:
        return event(_failure(failure))

    def failure_body(self, failure: ParkwayError) -> bytes:
        return encode(_failure(failure))

    def body(self, deltas: Sequence[Delta]) -> bytes:
        """An object for one answer, a list for several."""
        apart: list[list[Delta]] = [[] for _ in self._answer.choices]
        for delta in deltas:
            apart[delta.choice].append(delta)
        bodies = [self._selected(self._whole(index, each)) for index, each in enumerate(apart)]
        return encode(bodies[0] if len(bodies) == 1 else bodies)

    def _notice_frames(self, index: int, notice: Notice) -> bytes:
        if not self.tells_parks:
            return b""
        prompt = self._answer.choices[index].request.prompt_index
        frames = comment(f"{notice.state} {prompt}" if prompt else notice.state)
        if self._manner.notices == "chunks":
            frames += event(
                self._chunk(index, "", []) | {"parkway": {**msgspec.structs.asdict(notice), "index": index}}
            )
        return frames

    def _chunk(self, index: int, text: str, token_ids: Sequence[int]) -> dict[str, Any]:
        choice, streamed = self._answer.choices[index], self._streams[index]
        if streamed.slot < 0:
            streamed.slot = self._manner.slot_of(choice.request.id)
        return {
            "index": index,
            "content": text,
            "tokens": token_ids,
            "stop": False,
            "id_slot": streamed.slot,
            "tokens_predicted": streamed.count,
            "tokens_evaluated": len(choice.request.prompt),
        }

    def _text_chunk(self, index: int, text: str, token_ids: Sequence[int], rows: Sequence[Row]) -> dict[str, Any]:
        chunk = self._chunk(index, text, token_ids)
        if self._manner.timing:
            chunk["timings"] = _timings(self._answer, self._answer.choices[index])
        if rows:
            chunk["completion_probabilities"] = self._probabilities(rows)
        return chunk

    def _whole(self, index: int, deltas: Sequence[Delta]) -> dict[str, Any]:
        text = "".join(delta.text for delta in deltas)
        ids = [i for delta in deltas for i in delta.token_ids] if self._manner.tokens else []
        body = self._last(index, text, ids, has_new_line="\n" in text)
        if rows := [row for delta in deltas for row in delta.rows]:
            body["completion_probabilities"] = self._probabilities(rows)
        return body

    def _last(self, index: int, text: str, token_ids: Sequence[int], *, has_new_line: bool) -> dict[str, Any]:
        choice, manner = self._answer.choices[index], self._manner
        prompt, tokens = choice.request.prompt, choice.answer_tokens
        return self._chunk(index, text, token_ids) | {
            "stop": True,
            "model": manner.model,
            "tokens_predicted": tokens,
            "generation_settings": manner.settings | {"seed": choice.request.seed},
            "prompt": manner.tokenizer.decode(prompt),
            "has_new_line": has_new_line,
            "truncated": _truncated(choice, manner),
            "stop_type": _stop_type(choice),
            "stopping_word": choice.stop_string or "",
            "tokens_cached": min(len(prompt) + max(0, tokens - 1), manner.n_ctx),
            "timings": _timings(self._answer, choice),
            "preempt": msgspec.structs.asdict(choice.preempt),
        }

    def _selected(self, body: dict[str, Any]) -> dict[str, Any]:
        """The wanted fields under their paths; those that aren't there are left out."""
        if not self._manner.fields:
            return body
        return {path: found[0] for path in self._manner.fields if (found := _found(body, path))}

    def _probabilities(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        return [self._probability(row.scored) for row in rows if row.scored is not None]

    def _probability(self, scored: TokenLogprob) -> dict[str, Any]:
        top = [self._token(token_id, logprob) for token_id, logprob in scored.top]
        return self._token(scored.token_id, scored.logprob) | {"top_logprobs": top}

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        piece = self._manner.tokenizer.piece_bytes(token_id)
        text = piece.decode(errors="ignore")
        return {"id": token_id, "token": text, "bytes": list(piece), "logprob": max(logprob, _LOWEST)}


class _Streamed:
    """What of one choice has been streamed. `held`: tokens that have come and have not been told."""

    def __init__(self) -> None:
        self.slot = -1
        self.count = 0
        self.has_new_line = False
        self.held: list[int] = []
        self._rows: list[Row] = []

    def add(self, delta: Delta) -> None:
        self.held += delta.token_ids
        self._rows += delta.rows
        self.count += len(delta.token_ids)
        self.has_new_line |= "\n" in delta.text

    def take(self) -> tuple[list[int], list[Row]]:
        taken = self.held, self._rows
        self.held, self._rows = [], []
        return taken


def _failure(failure: ParkwayError) -> dict[str, Any]:
    return told(error_body(failure)["error"], status_of(failure))


def _progress(progress: Progress) -> dict[str, Any]:
    total, cached, done, ms = progress
    return {"total": total, "cache": cached, "processed": done, "time_ms": round(ms)}


def _timings(answer: Answer, choice: Choice) -> dict[str, float]:
    first, last = choice.first_token_at, choice.last_token_at
    prompt_ms = (first - answer.began_at) * 1000 if first else 0.0
    prompt = len(choice.request.prompt)
    return rates(prompt, choice.cached_tokens, prompt_ms, choice.answer_tokens, (last - first) * 1000)


def _truncated(choice: Choice, manner: Manner) -> bool:
    """Whether the answer has lost its end to the context, or the chat its oldest tokens."""
    tokens = len(choice.request.prompt) + choice.answer_tokens
    ended = tokens == manner.n_ctx and not manner.shifts and choice.finish_reason == "length"
    return ended or tokens > manner.n_ctx


def _stop_type(choice: Choice) -> str:
    if choice.stop_string is not None:
        return "word"
    return "limit" if choice.finish_reason == "length" else "eos"


def _found(body: Any, path: str) -> list[Any]:
    """The value at the path, if it is there."""
    for name in path.split("/"):
        if not isinstance(body, dict) or name not in body:
            return []
        body = body[name]
    return [body]
