"""The scanner against Python's json module, whole and in pieces."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parkway.text.json_scan import JsonScan

from .answers import cut, json_objects, json_values

indents = st.sampled_from([None, 0, 2])
nearly = st.lists(
    st.sampled_from([*'{}[]":,\\ \n', '"a"', "1", "-", "0", ".5", "e3", "tru", "true", "null", "\\u00e", "é", "\x01"])
).map(lambda pieces: "{" + "".join(pieces))


def scanned(pieces: Iterable[str]) -> tuple[int, bool]:
    """How many characters the value has, and whether it is complete."""
    scan, length = JsonScan(), 0
    for piece in pieces:
        used = scan.feed(piece)
        length += used
        if used < len(piece) or scan.done:
            break
    return length, scan.done


@given(value=json_objects | st.lists(json_values), indent=indents, ascii_only=st.booleans(), seed=st.integers())
def test_an_object_is_read_to_its_end(value: object, indent: int | None, ascii_only: bool, seed: int) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert scanned([*cut(text, seed), "}"]) == (len(text), True)
    assert scanned(cut(text[:-1], seed)) == (len(text) - 1, False)


@given(text=nearly, seed=st.integers())
def test_what_is_an_object_and_what_is_not_as_python_says(text: str, seed: int) -> None:
    try:
        end = json.JSONDecoder().raw_decode(text)[1]
    except ValueError:
        end = None
    length, done = scanned(cut(text, seed))
    assert (length if done else None) == end
    assert scanned([text]) == (length, done)


@pytest.mark.parametrize("text", ["true", "null", "-0", "1.5e+3", '"a\\u00e9"', "[]", "0"])
def test_values_that_are_no_objects(text: str) -> None:
    assert scanned([*text, ","]) == (len(text), True)


@pytest.mark.parametrize(("text", "good"), [("01", 1), ("[1,]", 3), ('{"a" 1}', 5), ("NaN", 0), ('"\n"', 1), ("+1", 0)])
def test_stops_at_the_first_character_that_cannot_be(text: str, good: int) -> None:
    assert scanned([text])[0] == good


def test_nesting_has_no_limit() -> None:
    assert scanned(["[" * 100_000 + "]" * 100_000]) == (200_000, True)
