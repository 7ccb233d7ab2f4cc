"""Grammars walked as an engine walks them: byte by byte, or by tokens of a vocabulary."""

import random
from collections.abc import Sequence

import numpy as np
from llguidance import LLTokenizer

from parkway.request import Request, SamplingParams, Vocabulary
from parkway.runner.compiled import compiled
from parkway.runner.constraint import Constraint
from parkway.runner.constraints import tokenizer_of

BYTES = Vocabulary([bytes([byte]) for byte in range(256)])


def accepts(grammar: str, text: str) -> bool:
    """Whether the whole text is one that the grammar allows."""
    matcher = compiled(tokenizer_of(BYTES, 256), grammar)
    assert not matcher.is_error(), matcher.get_error()
    return all(matcher.consume_token(byte) for byte in text.encode()) and matcher.is_accepting()


def request(grammar: str, stop_ids: Sequence[int] = (), **sampling: object) -> Request:
    params = SamplingParams(grammar=grammar, **sampling)  # type: ignore[arg-type]
    return Request(id=0, prompt=[1], sampling=params, seed=0, stop_ids=frozenset(stop_ids))


def allowed(constraint: Constraint) -> list[int]:
    assert constraint.mask is not None, constraint.error
    return [int(i) for i in np.flatnonzero(np.unpackbits(constraint.mask.view(np.uint8), bitorder="little"))]


def walk(grammar: str, tokenizer: LLTokenizer, vocab_size: int, seed: int, most: int = 400) -> list[int] | None:
    """Tokens drawn out of those that are allowed until the answer ends; None if it is not over by then. The shorter
    the better half of the time, so that it ends."""
    draw, constraint = random.Random(seed), Constraint(request(grammar), vocab_size)
    constraint.begin(tokenizer)
    tokens: list[int] = []
    while not constraint.ended:
        if constraint.may_end and draw.random() < 0.5:
            return tokens
        if len(tokens) == most:
            return None
        tokens.append(draw.choice(allowed(constraint)))
        constraint.accept(tokens[-1])
        assert constraint.error is None, constraint.error
    return tokens
