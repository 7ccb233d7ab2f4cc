"""Parameters in tags become the JSON object that they mean."""

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from parkway.text.parts import Part, Tool

from .answers import cut, parsed, parser_of, told

TYPES: dict[str, Any] = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "list": {"type": "array"},
    "maybe": {"type": ["string", "null"]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "unit": {"enum": ["1", "2"]},
    "open": {},
}
TOOL = Tool("f", "", {"type": "object", "properties": TYPES})


def written(values: dict[str, str]) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>"


def arguments(text: str) -> str:
    call, told_arguments = parsed("qwen3-coder", text, tools=(TOOL,))
    assert call == Part("call", "f", 0)
    return told_arguments.text


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("text", "3", "3"),
        ("text", "\n a\n", "\n a\n"),
        ("text", "", ""),
        ("number", "3", 3),
        ("number", "many", "many"),
        ("flag", "True", True),
        ("list", '[1, {"a": "</b>"}]', [1, {"a": "</b>"}]),
        ("maybe", "null", None),
        ("maybe", "3", "3"),
        ("either", "3", 3),
        ("unit", "1", "1"),
        ("open", "3", 3),
        ("open", "NaN", "NaN"),
        ("unknown", "{}", {}),
    ],
)
def test_a_value_is_what_the_schema_says(key: str, value: str, meant: object) -> None:
    assert json.loads(arguments(written({key: value}))) == {key: meant}


def test_a_call_without_parameters_has_an_empty_object() -> None:
    assert arguments(written({})) == "{}"
    assert arguments("<function=f></function>") == "{}"


@given(
    pieces=st.lists(st.sampled_from([*'<>/"\\\n aé\U0001f642', "</parameter", "\n</par"]), max_size=12),
    items=st.lists(st.integers(), max_size=3),
    seed=st.integers(),
)
def test_values_are_read_back_however_they_are_cut(pieces: list[str], items: list[int], seed: int) -> None:
    text = "".join(pieces)
    assume("</parameter>" not in text)
    answer = written({"text": text, "list": json.dumps(items)})
    parts = told(parser_of("qwen3-coder", tools=(TOOL,)), cut(answer, seed))
    assert [part.kind for part in parts] == ["call", "arguments"]
    assert json.loads(parts[1].text) == {"text": text, "list": items}


@pytest.mark.parametrize(
    ("text", "told_arguments"),
    [
        ("<function=f>\n<parameter=text>\nab\n</para", '{"text": "ab\\n</para'),
        ("<function=f>\n<parameter=list>\n[1, 2", '{"list": "[1, 2"'),
        ("<function=f>\n<parameter=number>12", '{"number": 12'),
        ("<function=f>\n<parameter=text>a</parameter>\n<para", '{"text": "a"'),
    ],
)
def test_a_call_that_is_cut_off_ends_where_it_ends(text: str, told_arguments: str) -> None:
    assert arguments(text) == told_arguments


def test_a_call_that_goes_wrong_ends_there() -> None:
    text = "<function=f>\n<parameter=number>1</parameter>\nwhat</function>"
    expected = [Part("call", "f", 0), Part("arguments", '{"number": 1', 0), Part("content", "\nwhat</function>")]
    assert parsed("qwen3-coder", text, tools=(TOOL,)) == expected


def test_a_string_is_told_as_it_comes() -> None:
    parser = parser_of("qwen3-coder", tools=(TOOL,))
    parser.push("<function=f>\n<parameter=text>\n")
    assert parser.push('a"\n') == [Part("arguments", 'a\\"', 0)]
    assert parser.push("b</") == [Part("arguments", "\\nb", 0)]
