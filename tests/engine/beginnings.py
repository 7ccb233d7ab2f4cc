"""Chats that begin alike, to models whose slots keep what pages don't hold, and their answers to the bit."""

from typing import Any

from msgspec import structs

from parkway.engine.engine import Engine
from parkway.request import Request
from tests.engine.toy import joined, make_request, outputs_of


def asked(number: int, prompt: list[int], max_tokens: int) -> Request:
    request = make_request(number, max_tokens=max_tokens, ignore_eos=True, logprobs=1, temperature=0.8)
    return structs.replace(request, prompt=prompt)


def sharing(system: list[int], parts: list[tuple[int, int]], max_tokens: int) -> list[Request]:
    """Requests, each with so many tokens of the system's and so many of its own."""
    return [asked(i, system[:shared] + [i] * rest, max_tokens) for i, (shared, rest) in enumerate(parts)]


def answers(engine: Engine, requests: list[Request]) -> list[Any]:
    """All at once."""
    outputs = outputs_of(engine, requests)
    return [joined(outputs[request.id]) for request in requests]
