"""Log-probabilities in OpenAI's two forms, keyed by position. Knows no stream and no engine."""

import codecs
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from parkway.request import TokenLogprob


class Row(NamedTuple):
    """A token and its log-probability: None for the first of a prompt, which follows nothing. `shown`: it has text."""

    token_id: int
    scored: TokenLogprob | None
    shown: bool


LOWEST = -9999.0
"""OpenAI's log-probability of a token that can't come; JSON has no infinity."""


class Pieces(Protocol):
    def piece_bytes(self, token_id: int) -> bytes: ...


def token_text(piece: bytes) -> str:
    """The token as text; OpenAI's `bytes:\\xe2\\x80` where it is part of a character only."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def chat_logprobs(rows: Iterable[Row], pieces: Pieces) -> dict[str, Any]:
    content = []
    for token_id, scored, _ in rows:
        if scored is not None:
            top = [_chat_entry(other, logprob, pieces) for other, logprob in scored.top]
            content.append(_chat_entry(token_id, scored.logprob, pieces) | {"top_logprobs": top})
    return {"content": content, "refusal": None}


def _chat_entry(token_id: int, logprob: float, pieces: Pieces) -> dict[str, Any]:
    piece = pieces.piece_bytes(token_id)
    return {"token": token_text(piece), "logprob": max(logprob, LOWEST), "bytes": list(piece)}


class CompletionRows:
    """The `logprobs` object of one completion choice; counts characters, so that offsets go on from chunk to chunk."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._characters = 0

    def take(self, rows: Iterable[Row]) -> dict[str, Any]:
        """`{tokens, token_logprobs, top_logprobs, text_offset}` of these rows, the next ones of the choice."""
        taken: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token_id, scored, shown in rows:
            piece = self._pieces.piece_bytes(token_id)
            taken["tokens"].append(token_text(piece))
            taken["token_logprobs"].append(None if scored is None else max(scored.logprob, LOWEST))
            taken["top_logprobs"].append(None if scored is None else self._top(scored))
            taken["text_offset"].append(self._characters)
            self._characters += len(self._decoder.decode(piece)) if shown else 0
        return taken

    def _top(self, scored: TokenLogprob) -> dict[str, float]:
        """The most probable tokens and the chosen one. Of two with one spelling, the likelier keeps it."""
        top: dict[str, float] = {}
        for token_id, logprob in [*scored.top, (scored.token_id, scored.logprob)]:
            top.setdefault(token_text(self._pieces.piece_bytes(token_id)), max(logprob, LOWEST))
        return top
