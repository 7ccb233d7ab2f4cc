"""Answers as models of each family write them, and what all dialects have in common."""

import json
import re

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from parkway.errors import BadSetting
from parkway.text.dialects import NAMES, dialect_named, dialect_of
from parkway.text.json_scan import JsonScan
from parkway.text.named_calls import DEEPSEEK
from parkway.text.parts import Part

from .answers import TOOLS, cut, json_objects, parsed, parser_of, told

ARGUMENTS = '{"city": "Pa}r{\\"is", "days": [1, {"a": null}]}'
CALL = f'{{"name": "get_weather", "arguments": {ARGUMENTS}}}'
REVERSED = f'{{"id": "x1", "arguments": {ARGUMENTS}, "name": "get_weather"}}'
FIRST = [Part("call", "get_weather", 0), Part("arguments", ARGUMENTS, 0)]
SECOND = [Part("call", "get_weather", 1), Part("arguments", ARGUMENTS, 1)]


def said(text: str) -> Part:
    return Part("content", text)


def thought(text: str) -> Part:
    return Part("reasoning", text)


def deepseek(head: str, tail: str) -> str:
    call = f"{DEEPSEEK.call}{head}{ARGUMENTS}{tail}{DEEPSEEK.call_end}"
    return f"Yes.{DEEPSEEK.calls}{call}\n{call}{DEEPSEEK.calls_end}"


EXAMPLES = [
    ("hermes", f"Look:\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{REVERSED}</tool_call>\n", "Look:", 2),
    ("hermes", f"<tool_call>{CALL}\n{CALL}</tool_call>", "", 2),
    ("smollm", f"<tool_call>[{CALL}, {CALL}]</tool_call>", "", 2),
    ("qwen3-coder", f"Yes.\n\n<tool_call>\n{CALL}\n</tool_call>", "Yes.", 1),
    ("llama3", CALL.replace("arguments", "parameters") + "; " + CALL, "", 2),
    ("llama3", f'Yes.<|python_tag|>{{"type": "function", {CALL[1:]}', "Yes.", 1),
    ("llama3", f"<function=get_weather>{ARGUMENTS}</function>", "", 1),
    ("mistral", f'Yes.[TOOL_CALLS] [{CALL[:-1]}, "id": "abc"}}, {CALL}]', "Yes.", 2),
    (
        "mistral-args",
        f"[TOOL_CALLS]get_weather[ARGS]{ARGUMENTS}[TOOL_CALLS]get_weather[CALL_ID]x1[ARGS]{ARGUMENTS}",
        "",
        2,
    ),
    ("gemma", f"Yes.\n```json\n{CALL}\n```", "Yes.", 1),
    ("gemma", f"```tool_code\n[{CALL}]\n```", "", 1),
    ("generic", f"{CALL}\n{CALL}", "", 2),
    ("deepseek-r1", deepseek("function<\uff5ctool\u2581sep\uff5c>get_weather\n```json\n", "\n```"), "Yes.", 2),
    ("deepseek-v3.1", deepseek("get_weather<\uff5ctool\u2581sep\uff5c>", ""), "Yes.", 2),
    (
        "gpt-oss",
        "<|channel|>commentary<|message|>Yes.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
        f"<|constrain|>json<|message|>{ARGUMENTS}<|end|>",
        "Yes.",
        1,
    ),
    ("gpt-oss", f" to=functions.get_weather<|channel|>commentary json<|message|>{ARGUMENTS}", "", 1),
]


@pytest.mark.parametrize(("name", "text", "content", "calls"), EXAMPLES)
def test_calls_as_each_family_writes_them(name: str, text: str, content: str, calls: int) -> None:
    expected = [*([said(content)] if content else []), *FIRST, *SECOND][: bool(content) + 2 * calls]
    assert parsed(name, text) == expected
    assert told(parser_of(name), text) == expected


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gpt-oss"])
def test_thoughts(name: str) -> None:
    opening, closing = dialect_named(name).shown[-2:]
    whole = [thought("Hm. <b>"), said("Yes.")]
    assert parsed(name, f"\n{opening}\nHm. <b>\n{closing}\n\nYes.") == whole
    assert parsed(name, f"Hm. <b>{closing}Yes.", thinking=True) == whole
    assert parsed(name, f"{opening}Hm. <b>{closing}Yes.", thinking=True) == whole
    assert parsed(name, f"{opening}Hm. <", thinking=False) == [thought("Hm. <")]
    assert parsed(name, f"{opening}\n\n{closing}\n\nYes.") == [said("Yes.")]
    assert parsed(name, f"Yes, {opening}no{closing}") == [said(f"Yes, {opening}no{closing}")]
    assert dialect_named(name).within_thought(f"…{opening}\n")
    assert not dialect_named(name).within_thought(f"…{opening}\n\n{closing}\n\n")


def test_harmony_channels() -> None:
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>a < b"
    assert parsed("gpt-oss", text) == [thought("Hm."), said("a < b")]
    assert parsed("gpt-oss", text.removeprefix("<|channel|>analysis<|message|>"), thinking=True)[0] == thought("Hm.")
    assert dialect_named("gpt-oss").within_thought("…<|channel|>analysis<|message|>")
    assert parsed("gpt-oss", "plain") == [said("plain")]
    code = "<|channel|>commentary to=python<|message|>print(1)<|end|>"
    assert parsed("gpt-oss", code) == [said("print(1)")]
    assert parsed("gpt-oss", "<|channel|>\n<|message|>") == [said("<|channel|>\n<|message|>")]


def test_a_call_within_a_thought_is_a_thought() -> None:
    text = f"<think>I could <tool_call>{CALL}</tool_call></think><tool_call>{CALL}</tool_call>"
    assert parsed("hermes", text) == [thought(f"I could <tool_call>{CALL}</tool_call>"), *FIRST]


MALFORMED = [
    ("hermes", '<tool_call>{"name": "f", "arguments": "none"}</tool_call>'),
    ("hermes", '<tool_call>{"tool": "f", "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f"}</tool_call>'),
    ("hermes", '<tool_call>{"name": "", "arguments": {}}</tool_call>'),
    ("hermes", "a \n<tool_call> \nnot JSON"),
    ("hermes", '<tool_call>{"name": "get_wea'),
    ("hermes", " \n<tool_c"),
    ("qwen3-coder", "<tool_call>\n<parameter=a>1</parameter>"),
    ("llama3", '{"name": "Bob", "parameters": {}}'),
    ("llama3", "<|python_tag|>print(1)"),
    ("llama3", f"Not at the beginning: {CALL}"),
    ("mistral", "[TOOL_CALLS] what"),
    ("gemma", "```tool_code\nprint(get_weather())\n```"),
    ("gemma", '```json\n{"name": "Bob", "age": 3}\n```'),
    ("deepseek-r1", f"{DEEPSEEK.calls}nothing"),
]


@pytest.mark.parametrize(("name", "text"), MALFORMED)
def test_what_is_no_call_is_content(name: str, text: str) -> None:
    assert parsed(name, text) == [said(text)]
    assert told(parser_of(name), text) == [said(text)]


def test_a_call_that_goes_wrong_ends_there_and_the_next_is_read() -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": tru}}}}</tool_call>\n<tool_call>{CALL}</tool_call>'
    expected = [Part("call", "f", 0), Part("arguments", '{"a": tru', 0), said("}}</tool_call>"), *SECOND]
    assert parsed("hermes", text) == expected


def test_a_call_without_its_closing_marker_is_a_call() -> None:
    assert parsed("hermes", f"<tool_call>{CALL}\n<tool_call>{CALL}") == [*FIRST, *SECOND]
    assert parsed("hermes", f"<tool_call>{CALL} and more") == [*FIRST, said(" and more")]


@pytest.mark.parametrize("length", range(len(CALL)))
def test_a_call_that_is_cut_off(length: int) -> None:
    """Content before the tool and its arguments are known, then a call whose arguments end where they end."""
    text, begin = f"<tool_call>{CALL[:length]}", CALL.index(ARGUMENTS)
    if length <= begin:
        assert parsed("hermes", text) == [said(text)]
    else:
        assert parsed("hermes", text) == [FIRST[0], Part("arguments", CALL[begin:length][: len(ARGUMENTS)], 0)]


def test_text_between_calls_keeps_its_whitespace() -> None:
    call = f"<tool_call>{CALL}</tool_call>"
    assert parsed("hermes", f"a\n\n{call}\n\nb\n{call}\n") == [said("a"), *FIRST, said("\n\nb"), *SECOND]


def test_without_tools_no_call_is_looked_for() -> None:
    text = f"<tool_call>{CALL}</tool_call>\n"
    assert parsed("hermes", text, tools=()) == [said(text)]
    assert parser_of("llama3", tools=()).push("{\n") == [said("{\n")]


def test_arguments_are_told_as_they_come() -> None:
    parser = parser_of("hermes")
    assert parser.push('<tool_call>{"name": "f", "arguments": ') == []
    assert parser.push('{"a": "x') == [Part("call", "f", 0), Part("arguments", '{"a": "x', 0)]
    assert parser.push("yz") == [Part("arguments", "yz", 0)]
    assert parser.push('"}} ') == [Part("arguments", '"}', 0)]


def test_content_is_held_only_while_it_may_be_a_marker() -> None:
    parser = parser_of("hermes")
    assert parser.push("a <b <") == [said("a <b")]
    assert parser.push("tool_ca") == []
    assert parser.push("n \n") == [said(" <tool_can")]
    assert parser.push("c") == [said(" \nc")]


WORDS = ["@", "@ ", " ", "\n", "<", "{", "}", "[", '"', "é@\U0001f642", "\\"]
CALLS = ['{"name": "f@", "arguments": {"a": "@", "b": [@]}}', '{"arguments": {"a": "@"}, "name": "f@"}', "{}"]
CALLS += ['{"name": "get_weather", "parameters": {"x": {"y": "\\"@}"}}', '{"name": "get_weather", "arguments": ']
PIECES = {
    "hermes": ["<tool_call>", "\n</tool_call>", "[", ",", "]", *CALLS],
    "qwen3-coder": ["<tool_call>", "</tool_call>", "<function=f@>", "</function>", "<parameter=k@>", "</parameter>"],
    "llama3": ["<|python_tag|>", "; ", "<function=f@>", '{"a": "@"}', "</function>", *CALLS],
    "mistral": ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "f@", '{"a": "@"}', ",", "]", *CALLS],
    "generic": ["```json", "```", "[", ",", "]", *CALLS],
    "deepseek-r1": [*DEEPSEEK, "f@", "function", '{"a": "@"}', "\n```json\n", "\n```"],
    "gpt-oss": [
        "<|start|>",
        "<|channel|>",
        "final",
        "analysis",
        " to=functions.f@",
        "<|message|>",
        "<|end|>",
        '{"a": "@"}',
    ],
}


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, str]:
    """A dialect, and a text with its markers in good order or bad; every @ is a word that occurs once."""
    name = draw(st.sampled_from(sorted(PIECES)))
    pieces = draw(st.lists(st.sampled_from([*PIECES[name], *PIECES[name], "<think>", "</think>", *WORDS]), max_size=14))
    numbered = (piece.replace("@", f"w{i}w", 1).replace("@", f"9{i}9", 1) for i, piece in enumerate(pieces))
    return name, "".join(numbered)


@given(answer=answers(), thinking=st.booleans(), seed=st.integers())
@settings(max_examples=200)
def test_the_same_parts_however_the_text_is_cut(answer: tuple[str, str], thinking: bool, seed: int) -> None:
    name, text = answer
    whole = parsed(name, text, thinking=thinking)
    assert told(parser_of(name, thinking=thinking), cut(text, seed)) == whole
    assert told(parser_of(name, thinking=thinking), text) == whole


@given(answer=answers(), thinking=st.booleans())
@settings(max_examples=200)
def test_nothing_is_lost_or_told_twice(answer: tuple[str, str], thinking: bool) -> None:
    name, text = answer
    parts = parsed(name, text, thinking=thinking)
    found = re.findall(r"w\d+w", "".join(part.text for part in parts))
    words = re.findall(r"w\d+w", text)
    headers = re.findall(r"w\d+w", "".join(re.findall(r"[\w .=:/<|>-]*<\|message\|>", text)))  # aren't told
    assert {*found} - {*headers} == {*words} - {*headers}
    assert len(found) == len(set(found))


@given(answer=answers())
def test_arguments_are_an_object_or_the_beginning_of_one(answer: tuple[str, str]) -> None:
    parts = parsed(*answer)
    assert [part.call for part in parts if part.kind == "call"] == list(range(sum(p.kind == "call" for p in parts)))
    for part in parts:
        if part.kind == "arguments":
            scan = JsonScan()
            assert part.text[0] == "{"
            assert scan.feed(part.text) == len(part.text)
            assert not scan.done or isinstance(json.loads(part.text), dict)


@given(values=st.lists(json_objects, min_size=1, max_size=3), indent=st.sampled_from([None, 1]), seed=st.integers())
@settings(max_examples=30)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("qwen3-coder", "gpt-oss")])
def test_arguments_are_the_models_own_text(name: str, values: list[object], indent: int | None, seed: int) -> None:
    dialect = dialect_named(name)
    arguments = [json.dumps(value, indent=indent, ensure_ascii=False) for value in values]
    text = "\n".join(dialect.written_call("get_weather", each) for each in arguments)
    parts = told(dialect.parser(tools=TOOLS, thinking=False), cut(text, seed))
    assert [part.text for part in parts] == [text for each in arguments for text in ("get_weather", each)]


def test_the_properties_catch_a_parser_that_looks_at_one_piece_at_a_time() -> None:
    def wrong(name: str, text: str) -> list[Part]:
        return [part for piece in cut(text, 1) for part in parsed(name, piece)]

    find(answers(), lambda answer: wrong(*answer) != parsed(*answer))  # raises if there is no such answer


TEMPLATES = [
    ("<|channel|>analysis", "gpt-oss"),
    (f"{DEEPSEEK.calls} ```json", "deepseek-r1"),
    (DEEPSEEK.calls, "deepseek-v3.1"),
    ("{{'<\uff5cAssistant\uff5c>'}}", "deepseek-r1"),
    ("[TOOL_CALLS]{{name}}[ARGS]", "mistral-args"),
    ("[TOOL_CALLS] [", "mistral"),
    ("<tool_call>\n<function=a><parameter=b>", "qwen3-coder"),
    ('<tool_call>\n{"name"', "hermes"),
    ("named SmolLM, trained by", "smollm"),
    ("<|start_header_id|> <|python_tag|>", "llama3"),
    ('<|start_header_id|> {"name": name, "parameters": {}}', "llama3"),
    ("<start_of_turn>model", "gemma"),
    ("<|im_start|>assistant", "generic"),
    (None, "generic"),
]


@pytest.mark.parametrize(("source", "name"), TEMPLATES)
def test_a_dialect_is_chosen_by_what_the_template_holds(source: str | None, name: str) -> None:
    assert dialect_of(source).name == name


def test_a_dialect_is_chosen_by_its_name() -> None:
    assert [dialect_named(name).name for name in NAMES] == list(NAMES)
    with pytest.raises(BadSetting, match=r"--tool-call-parser: .*hermes"):
        dialect_named("nobody")
