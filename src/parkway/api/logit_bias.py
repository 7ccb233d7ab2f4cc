"""The forms that a logit bias is written in: OpenAI's map, llama-server's lists. Knows no request."""

import math
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import PlainValidator

from parkway.errors import BadRequest
from parkway.text import Tokenizer

_SHAPE = "must be a map from token ids to numbers, or a list of [token id or text, number or false]"
MOST = 4096
"""Entries of one request."""


def _entries(value: Any) -> list[tuple[int | str, float]]:
    """An id or text with its number each; false forbids. A text stands for each of its tokens."""
    pairs = [(_id_or_text(key), bias) for key, bias in value.items()] if isinstance(value, dict) else value
    if not isinstance(pairs, list) or len(pairs) > MOST:
        raise ValueError(_SHAPE if not isinstance(pairs, list) else f"must have at most {MOST} entries")
    return [_entry(pair) for pair in pairs]


def _entry(pair: Any) -> tuple[int | str, float]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ValueError(_SHAPE)
    token, bias = pair
    if not isinstance(token, int | str) or isinstance(token, bool):
        raise ValueError(_SHAPE)
    if bias is False:
        return token, -math.inf
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not abs(bias) <= 1e6:
        raise ValueError(f"{_SHAPE}; {bias!r} is not between -1e6 and 1e6")
    return token, float(bias)


def _id_or_text(key: str) -> int | str:
    return int(key) if key.isascii() and key.isdecimal() and len(key) < 10 else key


Bias = Annotated[
    list[tuple[int | str, float]],
    PlainValidator(_entries, json_schema_input_type=dict[str, float] | list[tuple[int | str, float | bool]]),
]


def by_token(entries: Sequence[tuple[int | str, float]], tokenizer: Tokenizer) -> tuple[tuple[int, float], ...]:
    """Each token once, with the sum of its numbers. Raises BadRequest for an id that is none."""
    sums: dict[int, float] = {}
    for token, bias in entries:
        for token_id in tokenizer.encode(token) if isinstance(token, str) else [token]:
            sums[token_id] = sums.get(token_id, 0.0) + bias
    for token_id in sums:
        if not 0 <= token_id < tokenizer.vocab_size:
            last = tokenizer.vocab_size - 1
            raise BadRequest("logit_bias", f"logit_bias holds {token_id}, which is not a token id between 0 and {last}")
    return tuple(sums.items())
