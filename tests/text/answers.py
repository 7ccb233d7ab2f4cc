"""Answers cut in pieces, and the parts that parsers make of them."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from parkway.text.dialects import dialect_named
from parkway.text.parts import Parser, Part, Tool

WEATHER = Tool(
    "get_weather",
    "The weather of a city.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 5},
            "days": {"type": "integer", "minimum": 0, "maximum": 99},
            "unit": {"enum": ["C", "F"]},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
    },
)
TIME = Tool("time-now", "What time it is.", {"type": "object", "properties": {}, "additionalProperties": False})
TOOLS = (WEATHER, TIME)


def parser_of(name: str, *, tools: tuple[Tool, ...] = TOOLS, thinking: bool = False) -> Parser:
    return dialect_named(name).parser(tools=tools, thinking=thinking)


def joined(parts: Iterable[Part]) -> list[Part]:
    """Pieces of the same kind as one part."""
    whole: list[Part] = []
    for part in parts:
        if whole and part.kind != "call" and (whole[-1].kind, whole[-1].call) == (part.kind, part.call):
            part = part._replace(text=whole.pop().text + part.text)
        whole.append(part)
    return whole


def told(parser: Parser, pieces: Iterable[str]) -> list[Part]:
    parts: list[Part] = []
    for piece in pieces:
        parts += parser.push(piece)
    return joined([*parts, *parser.finish()])


def parsed(name: str, text: str, **options: Any) -> list[Part]:
    return told(parser_of(name, **options), [text])


def cut(text: str, seed: int) -> Sequence[str]:
    """The text in random pieces, some of one character."""
    draw = random.Random(seed)
    pieces, at = [], 0
    longest = draw.choice([1, 2, 5, 30])
    while at < len(text):
        pieces.append(text[at : at + draw.randint(1, longest)])
        at += len(pieces[-1])
    return pieces


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(st.sampled_from(["a", "city", "{", '"', "é\n", "\U0001f642"]), json_values, max_size=3)
