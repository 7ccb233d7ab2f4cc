"""Random walks through what a grammar allows are read back as calls of the tools, by the schema."""

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import llguidance
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from parkway.errors import BadRequest
from parkway.text import Tokenizer
from parkway.text.dialects import NAMES, dialect_named
from parkway.text.parts import Tool

from .answers import TOOLS, WEATHER, told

MOST_TOKENS = 2000


class Vocabulary:
    """What llguidance asks a tokenizer for."""

    bos_token_id = None

    def __init__(self, tokens: list[bytes], special: Sequence[int], eos: int, encode: Any) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id = tokens, special, eos
        self._encode = encode

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._encode(text)
        return ids


@pytest.fixture(scope="module")
def words(tokenizer: Tokenizer) -> LLTokenizer:
    """The default model's vocabulary: no marker is a token of its own."""
    tokens = [tokenizer.piece_bytes(i) for i in range(tokenizer.vocab_size)]
    eos = min(tokenizer.stop_ids)
    vocabulary = Vocabulary(tokens, sorted(tokenizer.special_ids), eos, tokenizer.encode_plain)
    return LLTokenizer(llguidance.TokenizerWrapper(vocabulary), slices=[])


def bytes_and(markers: Sequence[str]) -> LLTokenizer:
    """A vocabulary of bytes, special tokens for these markers and one that ends."""
    tokens = [*(bytes([byte]) for byte in range(256)), *(each.encode() for each in markers), b"<|eos|>"]
    special = range(256, len(tokens))
    vocabulary = Vocabulary(tokens, list(special), len(tokens) - 1, lambda text: list(text.encode()))
    return LLTokenizer(llguidance.TokenizerWrapper(vocabulary), slices=[])


def walk(vocabulary: LLTokenizer, tokens: list[bytes], grammar: str, begin: list[int], seed: int) -> str:
    """The text of one walk that begins with these tokens and ends where the grammar lets it end."""
    draw, matcher = random.Random(seed), LLMatcher(vocabulary, grammar, log_level=0)
    assert matcher.consume_tokens(begin), matcher.get_error()
    ids = [*begin]
    while not matcher.is_stopped():
        assert len(ids) < MOST_TOKENS
        allowed = np.flatnonzero(np.frombuffer(matcher.compute_logit_bias(), np.uint8)[: len(tokens)])
        assert len(allowed), matcher.get_error()
        ids.append(int(draw.choice(allowed)))
        assert matcher.consume_token(ids[-1])
    return b"".join(tokens[i] for i in ids if i != vocabulary.eos_token).decode()


def is_weather(arguments: Any) -> bool:
    city, days, unit = arguments["city"], arguments["days"], arguments.get("unit", "C")
    return isinstance(city, str) and len(city) <= 5 and days in range(100) and unit in ("C", "F") and len(arguments) < 4


def check(name: str, text: str, *, thinking: bool, most: int) -> None:
    parts = told(dialect_named(name).parser(tools=TOOLS, thinking=thinking), text)
    thoughts = [part.text for part in parts if part.kind == "reasoning"]
    assert thoughts == (["hm"] if thinking else []), text
    calls = [part for part in parts if part.kind != "reasoning"]
    assert [part.kind for part in calls] == ["call", "arguments"] * (len(calls) // 2), text
    assert 1 <= len(calls) // 2 <= most
    for call, arguments in zip(calls[::2], calls[1::2], strict=True):
        value = json.loads(arguments.text)
        assert is_weather(value) if call.text == "get_weather" else (call.text, value) == ("time-now", {}), text


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_walks_over_words_are_calls(
    name: str, thinking: bool, parallel: bool, words: LLTokenizer, tokenizer: Tokenizer
) -> None:
    grammar = dialect_named(name).calls(TOOLS, parallel=parallel, thinking=thinking, special={})
    tokens = [tokenizer.piece_bytes(i) for i in range(tokenizer.vocab_size)]
    begin = begin_of(name, thinking)
    for seed in range(2):
        text = walk(words, tokens, grammar, tokenizer.encode_plain(begin), seed)
        check(name, text, thinking=thinking, most=99 if parallel else 1)


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_walks_where_markers_are_special_tokens_are_calls(name: str, thinking: bool) -> None:
    dialect = dialect_named(name)
    special = list(dialect.shown)
    vocabulary = bytes_and(special)
    tokens = [*(bytes([byte]) for byte in range(256)), *(each.encode() for each in special), b""]
    grammar = dialect.calls(
        TOOLS, parallel=True, thinking=thinking, special={each: 256 + i for i, each in enumerate(special)}
    )
    pieces = re.split("(" + "|".join(map(re.escape, special)) + ")", begin_of(name, thinking))
    ids = ([256 + special.index(each)] if each in special else [*each.encode()] for each in pieces)
    begin = [i for piece in ids for i in piece]
    for seed in range(2):
        check(name, walk(vocabulary, tokens, grammar, begin, seed), thinking=thinking, most=99)


def begin_of(name: str, thinking: bool) -> str:
    """The end of a thought, or enough of a call that none is begun."""
    if not thinking:
        marker = re.match(r"<[^>]*>|\[[A-Z_]+\]|\{", dialect_named(name).written_call("get_weather", ""))
        return "<|channel|>c" if name == "gpt-oss" else marker[0] if marker else ""
    if name == "gpt-oss":
        return "hm<|end|>"
    return "hm[/THINK]" if name.startswith("mistral") else "hm</think>"


def test_a_walk_can_think_first(tokenizer: Tokenizer, words: LLTokenizer) -> None:
    tokens = [tokenizer.piece_bytes(i) for i in range(tokenizer.vocab_size)]
    grammar = dialect_named("hermes").calls(TOOLS, parallel=False, thinking=False, special={})
    text = walk(words, tokens, grammar, tokenizer.encode_plain("<think>hm</think>\n"), 1)
    check("hermes", text.removeprefix("<think>"), thinking=True, most=1)


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder"])
def test_a_schema_that_cannot_be_honoured_is_refused(name: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "not": {"const": "x"}}}, "required": ["a"]}
    with pytest.raises(BadRequest, match="not") as raised:
        dialect_named(name).calls((WEATHER, Tool("f", "", schema)), parallel=True, thinking=False, special={})
    assert raised.value.param == "tools"


def test_parameters_in_tags_know_the_definitions_of_the_schema(words: LLTokenizer, tokenizer: Tokenizer) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/digit"}, "b": {"type": "string", "enum": ["x", 'y"']}},
        "required": ["a", "b"],
        "$defs": {"digit": {"type": "integer", "minimum": 1, "maximum": 3}},
    }
    tool = Tool("f", "", schema)
    grammar = dialect_named("qwen3-coder").calls((tool,), parallel=False, thinking=False, special={})
    tokens = [tokenizer.piece_bytes(i) for i in range(tokenizer.vocab_size)]
    text = walk(words, tokens, grammar, tokenizer.encode_plain("<tool_call>"), 1)
    _, arguments = told(dialect_named("qwen3-coder").parser(tools=(tool,), thinking=False), text)
    value = json.loads(arguments.text)
    assert value["a"] in (1, 2, 3)
    assert value["b"] in ("x", 'y"')


def test_a_tool_without_a_schema_takes_any_object() -> None:
    assert dialect_named("hermes").calls((Tool("f", "", {}),), parallel=False, thinking=False, special={})


HELD = [name for name in NAMES if dialect_named(name).held(TOOLS, parallel=True, thinking=False, special={})]
GOOD, BAD = '{"city": "Ulm", "days": 3}', '{"city": "Ulm", "days": "3"}'


def may_be(name: str, text: str, *, parallel: bool = True, special: bool = False, thinking: bool = False) -> bool:
    """Whether a dialect's answer that may call tools can be this text."""
    dialect = dialect_named(name)
    marks = list(dialect.shown) if special else []
    ids = {each: 256 + i for i, each in enumerate(marks)}
    grammar = dialect.held(TOOLS, parallel=parallel, thinking=thinking, special=ids)
    assert grammar is not None
    matcher = LLMatcher(bytes_and(marks), grammar, log_level=0)
    pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", text) if marks else [text]
    tokens = [token for piece in pieces for token in ([ids[piece]] if piece in ids else piece.encode())]
    return all(matcher.consume_token(token) for token in tokens) and matcher.is_accepting()


def call(name: str, arguments: str, tool: str = "get_weather") -> str:
    dialect = dialect_named(name)
    if name != "qwen3-coder":
        return dialect.written_call(tool, arguments)
    pairs = [(key, value if key == "city" else json.dumps(value)) for key, value in json.loads(arguments).items()]
    return dialect.written_call(tool, "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs))


def test_dialects_in_which_a_marker_tells_a_call_from_text() -> None:
    assert {*NAMES} - {*HELD} == {"llama3", "gemma", "generic", "gpt-oss"}


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", HELD)
def test_an_answer_that_may_call_is_held_from_the_marker_on(name: str, special: bool) -> None:
    good, bad = call(name, GOOD), call(name, BAD)
    texts = [
        "",
        "Hi.",
        "a < b",
        '{"a": 1}',
        good,
        f"Let me see.\n{good}",
        f"{good}\nThat is all.",
        f"{good} and {good}",
    ]
    assert [may_be(name, text, special=special) for text in texts] == [True] * len(texts)
    faults = [bad, f"Hi {bad}", good[: len(good) // 2], call(name, GOOD, "no_tool")]
    assert [may_be(name, text, special=special) for text in faults] == [False] * len(faults)
    assert may_be(name, f"{good} bye", special=special, parallel=False)
    assert not may_be(name, f"{good} and {good}", special=special, parallel=False)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", HELD)
def test_a_thought_may_hold_what_is_no_call(name: str, special: bool) -> None:
    opening, closing = dialect_named(name).thought_marks[:2]
    marker = call(name, GOOD)[: call(name, GOOD).index("get_weather") - 1]
    thought = f"{opening}I could write {'' if special else marker}…{closing}\n"
    assert may_be(name, thought + "Hi", special=special)
    assert may_be(name, thought + call(name, GOOD), special=special)
    assert not may_be(name, thought + call(name, BAD), special=special)
    within = thought.removeprefix(opening)
    assert may_be(name, within + call(name, GOOD), special=special, thinking=True)
    assert not may_be(name, within + call(name, BAD), special=special, thinking=True)


ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
NEXT = "<|end|><|start|>assistant"


def message_to(tool: str, arguments: str, *, first: bool = False, kind: str = "<|constrain|>json") -> str:
    to, channel = f" to=functions.{tool}", "<|channel|>commentary"
    return f"{to}{channel} {kind}<|message|>{arguments}" if first else f"{channel}{to} {kind}<|message|>{arguments}"


def test_messages_to_tools_are_held() -> None:
    texts = [
        *("", f"{FINAL}Hi", f"{FINAL}Hi<|end|>", f"{ANALYSIS}hm{NEXT}{FINAL}Hi", f"{ANALYSIS}to=functions.f"),
        *(message_to("get_weather", GOOD), message_to("get_weather", GOOD, first=True), message_to("time-now", "{}")),
        *(f"{ANALYSIS}hm{NEXT}{message_to('get_weather', GOOD)}", message_to("get_weather", GOOD, kind="json")),
    ]
    assert [may_be("gpt-oss", text, special=True) for text in texts] == [True] * len(texts)
    faults = [
        *(message_to("get_weather", BAD), message_to("get_weather", BAD, first=True), message_to("get", GOOD)),
        *(message_to("get_weather2", GOOD), f"{ANALYSIS}hm{NEXT}{message_to('get_weather', BAD)}", "Hi"),
        *(f"{message_to('get_weather', GOOD)}{NEXT}{FINAL}", message_to("get_weather to=functions.f", GOOD)),
    ]
    assert [may_be("gpt-oss", text, special=True) for text in faults] == [False] * len(faults)
    assert may_be("gpt-oss", f"hm{NEXT}{message_to('get_weather', GOOD)}", special=True, thinking=True)
    assert not may_be("gpt-oss", f"hm{NEXT}{message_to('get_weather', BAD)}", special=True, thinking=True)


def test_a_call_that_is_read_but_not_held_cannot_be() -> None:
    assert not may_be("qwen3-coder", "<function=get_weather>")
    assert may_be("qwen3-coder", "<function")


@pytest.mark.parametrize("name", ["hermes", "llama3", "mistral", "gpt-oss"])
def test_arguments_have_no_others_than_the_tool_lists(name: str) -> None:
    """At any depth, as an answer by the same schema has none; a tool that lists none has none."""
    place = {"type": "object", "properties": {"x": {"enum": [1]}}, "required": ["x"]}
    nested = {"type": "object", "properties": {"at": place}, "required": ["at"]}
    none = {"type": "object", "properties": {}}
    vocabulary = bytes_and(())
    tokens = [*(bytes([byte]) for byte in range(256)), b""]
    for parameters, wanted in ((nested, {"at": {"x": 1}}), (none, {})):
        tool = Tool("f", "", parameters)
        grammar = dialect_named(name).calls((tool,), parallel=False, thinking=False, special={})
        for seed in range(2):
            text = walk(vocabulary, tokens, grammar, [*begin_of(name, False).encode()], seed)
            parts = told(dialect_named(name).parser(tools=(tool,), thinking=False), text)
            assert [json.loads(part.text) for part in parts if part.kind == "arguments"] == [wanted], text


@pytest.mark.parametrize("kind", ["string", "what", ["string", "null"], 5])
def test_arguments_that_are_no_object_are_refused(kind: Any) -> None:
    with pytest.raises(BadRequest, match="arguments of f must be of type object") as raised:
        Tool("f", "", {"type": kind})
    assert raised.value.param == "tools"
    assert Tool("f", "", {"type": ["object", "null"]}).parameters
