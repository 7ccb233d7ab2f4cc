"""Answers in parts, drawn: what an API's form is given, piece by piece."""

import json

from hypothesis import strategies as st

from parkway.text.parts import Part

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4), min_size=1, max_size=3)
OBJECTS = st.dictionaries(st.text("aé\n", max_size=2), st.integers() | st.text("b\\\0"), max_size=2)


@st.composite
def answers(draw: st.DrawFn) -> list[Part]:
    parts: list[Part] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(["content", "reasoning", "call"]), max_size=6)):
        if kind != "call":
            parts += [Part("content" if kind == "content" else "reasoning", piece) for piece in draw(TEXTS)]
            continue
        arguments = json.dumps(draw(OBJECTS))
        cut = draw(st.integers(0, len(arguments)))
        pieces = [Part("arguments", piece, calls) for piece in (arguments[:cut], arguments[cut:]) if piece]
        parts += [Part("call", draw(st.sampled_from(["a", "b"])), calls), *pieces]
        calls += 1
    return parts
