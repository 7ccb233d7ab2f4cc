"""What clients ask of an answer's form: what becomes a grammar, what is refused and how fast, and that every text that
a vocabulary can make within a grammar is one that was asked for."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLTokenizer

from parkway.errors import BadRequest
from parkway.runner.constraints import tokenizer_of
from parkway.text import Tokenizer
from parkway.text.grammar import Kind, grammar_of, vocabulary_of
from tests.grammars import accepts, walk

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
}


@pytest.mark.parametrize(
    ("kind", "source", "good", "bad"),
    [
        ("json_object", "", ["{}", '{"a": [1, {"b": null}]}'], ["[]", '"a"', "{} ", '{"a": }']),
        (
            "json_schema",
            PERSON,
            ['{"name": "A", "age": 3}', '{"name":"A","age":0}'],
            ["{}", '{"name": "A", "age": -1}'],
        ),
        ("json_schema", json.dumps(PERSON), ['{\n  "name": "A",\n  "age": 3\n}'], ['{"age": 3, "name": "A"}']),
        ("json_schema", {"enum": ["a/b", 'c"d', 3]}, ['"a/b"', '"c\\"d"', "3"], ["4", "a/b"]),
        ("regex", "a/b|\\d{2}", ["a/b", "12"], ["a", "1", "123", "a/b "]),
        ("regex", "^(yes|no)$", ["yes", "no"], ["yesno", "^yes$"]),
        ("regex", "a\nb", ["a\nb"], ["a b"]),
        ("regex", "", [""], ["a"]),
        ("regex", re.escape("a b-c/d(e)\n") + "|" + re.escape("ü"), ["a b-c/d(e)\n", "ü"], ["a"]),
        ("lark", 'start: "a" b\nb: "b"*', ["a", "abb"], ["b", "aba"]),
        (
            "lark",
            'start: "<" x ">"\nx: %json {"type": "object", "properties": {"a": {}}}',
            ['<{"a": 1}>'],
            ['<{"b": 1}>'],
        ),
        ("gbnf", 'root ::= "a" b\nb ::= "b"*', ["a", "abb"], ["b", "aba"]),
    ],
)
def test_a_grammar_allows_what_was_asked_for_and_nothing_else(
    kind: Kind, source: Any, good: list[str], bad: list[str]
) -> None:
    grammar = grammar_of(kind, source, "x")
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


def test_space_between_parts_of_json_ends() -> None:
    grammar = grammar_of("json_object", "", "x")
    assert accepts(grammar, '{\n                    "a": 1}')
    for space in ("  ", "\n\n", "\n" + 21 * " ", "\t"):
        assert not accepts(grammar, "{" + space + '"a": 1}')


REFUSED: list[tuple[Kind, Any, str]] = [
    ("json_schema", "{", "Expecting property name"),
    ("json_schema", [1], "a schema must be an object, not list"),
    ("json_schema", {"type": "strin"}, "Invalid type: strin"),
    ("json_schema", {"not": {"type": "string"}}, 'Unimplemented keys: \\["not"\\]'),
    ("json_schema", {"if": {}, "x-guidance": {"lenient": True}}, 'Unimplemented keys: \\["if"\\]'),
    ("json_schema", {"type": "string", "format": "unheard-of"}, "Unknown format: unheard-of"),
    ("json_schema", {"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf constraints are not supported"),
    ("json_schema", {"$ref": "http://127.0.0.1:9/schema"}, "http://127.0.0.1:9/schema"),
    ("json_schema", {"type": "integer", "minimum": 5, "maximum": 3}, "Unsatisfiable"),
    ("json_schema", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "it allows no text"),
    ("regex", "a(", "unclosed|regex parse error"),
    ("regex", "(?=a)b", "regex parse error"),
    ("regex", "(a)\\1", "regex parse error"),
    ("regex", 3, "it must be a text, not int"),
    ("lark", "start: foo", 'unknown name: "foo"'),
    ("lark", "start: a\na: a", "it allows no text"),
    ("lark", "start: <|im_end|>", "it names a special token"),
    ("lark", 'start: %json {"a": }', "Expecting value"),
    ("lark", 'start: %json {"not": {}}', "Unimplemented keys"),
    ("gbnf", 'root ::= "a', "line 1: "),
]


@pytest.mark.parametrize(("kind", "source", "sentence"), REFUSED)
def test_what_is_wrong_or_cannot_be_kept_to_is_the_clients_error(kind: Kind, source: Any, sentence: str) -> None:
    with pytest.raises(BadRequest, match=f"^the.field is no .* that can be kept to: .*({sentence})") as caught:
        grammar_of(kind, source, "the.field")
    assert caught.value.param == "the.field"
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def nested(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def one(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"}}}


def chain(of: Callable[[str, str], str], last: str, links: int) -> str:
    return "\n".join([*(of(f"a{i}", f"a{i + 1}") for i in range(links)), last.replace("NAME", f"a{links}")])


def references(count: int, link: Callable[[str], Any]) -> dict[str, Any]:
    links = {f"a{i}": link(f"#/$defs/a{i + 1}") for i in range(count)}
    return {"$ref": "#/$defs/a0", "$defs": {**links, f"a{count}": {"type": "string"}}}


HOSTILE: dict[str, tuple[Kind, Any]] = {
    "nesting": ("json_schema", nested(200)),
    "nesting without end": ("json_schema", nested(100_000)),
    "nested text": ("json_schema", '{"items":' * 10_000 + "{}" + "}" * 10_000),
    "a chain of references": ("json_schema", references(3_400, lambda name: {"$ref": name})),
    "a chain of objects": (
        "json_schema",
        references(1_500, lambda name: {"type": "object", "properties": {"x": {"$ref": name}}}),
    ),
    "alternatives to the power": (
        "json_schema",
        {"allOf": [{"anyOf": [one(f"a{i}"), one(f"b{i}")]} for i in range(16)]},
    ),
    "definitions to the power": (
        "json_schema",
        references(40, lambda name: {"allOf": [{"$ref": name}, {"$ref": name}]}),
    ),
    "many properties": ("json_schema", {"properties": {f"p{i}": {"type": "string"} for i in range(20_000)}}),
    "many objects": ("json_schema", {"anyOf": [one(f"p{i}") for i in range(1_800)]}),
    "many remainders": ("json_schema", {"type": "integer", "multipleOf": 1_000_003}),
    "many remainders together": ("json_schema", {"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}),
    "remainders of fractions": ("json_schema", {"allOf": [{"multipleOf": 0.0001}, {"multipleOf": 1009}]}),
    "a tiny step": ("json_schema", {"type": "number", "multipleOf": 1e-300}),
    "long strings": ("json_schema", {"type": "string", "minLength": 10_000_000}),
    "long arrays": ("json_schema", {"type": "array", "minItems": 10_000_000, "items": nested(9)}),
    "a number of many digits": ("json_schema", '{"type":"integer","maximum":' + "9" * 5000 + "}"),
    "repetition of repetition": ("regex", "(a{1000}){1000}"),
    "words of words": ("regex", r"(?:\w{1,1000}){1,1000}"),
    "brackets": ("regex", "(" * 5000 + ")" * 5000),
    "many sets": ("regex", "[^a]" * 30_000),
    "many alternatives": ("lark", "start: " + "|".join(['"a"'] * 8000)),
    "many options": ("lark", "start: " + " ".join(['"a"?'] * 2000)),
    "a chain of rules": ("lark", "start: a0\n" + chain("{}: {}".format, 'NAME: "y"', 6000)),
    "a chain of terminals": ("lark", "start: A0\n" + chain('{}: {} "x"'.format, 'NAME: "y"', 6000).upper()),
    "terminals to the power": ("lark", "start: A0\n" + chain("{0}: {1} {1}".format, 'NAME: "y"', 40).upper()),
    "groups": ("gbnf", "root ::= " + "(" * 5000 + '"a"' + ")" * 5000),
    "many words": ("gbnf", "root ::= " + "|".join(f'"w{i}"' for i in range(3000))),
    "a large number": ("gbnf", 'root ::= "a"{99999999999999999999}'),
}


@pytest.mark.parametrize("kind_and_source", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.timeout(20)
def test_what_would_take_for_ever_is_refused_or_cheap(kind_and_source: tuple[Kind, Any]) -> None:
    with suppress(BadRequest):
        grammar_of(*kind_and_source, "x")


@pytest.fixture(scope="session")
def tokens(tokenizer: Tokenizer) -> LLTokenizer:
    """llguidance's view of the default model's vocabulary."""
    return tokenizer_of(vocabulary_of(tokenizer), tokenizer.vocab_size)


NAMES = st.text('abc"\\ü é', min_size=1, max_size=4)
LEAVES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.tuples(st.integers(-50, 50), st.integers(0, 99)).map(
        lambda bounds: {"type": "integer", "minimum": bounds[0], "maximum": sum(bounds)}
    ),
    st.tuples(st.integers(0, 3), st.integers(0, 9)).map(
        lambda bounds: {"type": "string", "minLength": bounds[0], "maxLength": sum(bounds)}
    ),
    st.just({"type": "string", "pattern": "^[a-c]{1,3}-\\d+$", "maxLength": 9}),
    st.just({"type": "string", "format": "date"}),
    st.lists(st.one_of(st.integers(-9, 9), NAMES, st.none()), min_size=1, max_size=4).map(lambda each: {"enum": each}),
    NAMES.map(lambda value: {"const": value}),
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(NAMES, inner, max_size=3)
    return properties.flatmap(
        lambda made: st.builds(
            lambda required: {"type": "object", "properties": made, "required": required},
            st.lists(st.sampled_from(sorted(made)), unique=True) if made else st.just([]),
        )
    )


def arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda items, low, width: {"type": "array", "items": items, "minItems": low, "maxItems": low + width},
        *(inner, st.integers(0, 2), st.integers(0, 2)),
    )


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        objects(inner), arrays(inner), st.lists(inner, min_size=1, max_size=3).map(lambda each: {"anyOf": each})
    ),
    max_leaves=6,
)


@settings(max_examples=60, derandomize=True)
@given(schema=SCHEMAS, seed=st.integers(0, 99))
def test_whatever_tokens_are_drawn_the_text_is_json_by_the_schema(
    schema: dict[str, Any], seed: int, tokens: LLTokenizer, tokenizer: Tokenizer
) -> None:
    drawn = walk(grammar_of("json_schema", schema, "x"), tokens, tokenizer.vocab_size, seed)
    if drawn is not None:
        text = b"".join(map(tokenizer.piece_bytes, drawn)).decode()
        jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)


def test_drawn_tokens_split_words_and_characters(tokens: LLTokenizer, tokenizer: Tokenizer) -> None:
    """Otherwise the test above would say little."""
    grammar = grammar_of("json_schema", {"type": "string", "minLength": 30, "maxLength": 60}, "x")
    walks = [walk(grammar, tokens, tokenizer.vocab_size, seed) for seed in range(20)]
    pieces = [tokenizer.piece_bytes(token) for drawn in walks if drawn for token in drawn]
    assert any(not piece.decode(errors="replace").isprintable() or piece[0] > 127 for piece in pieces)
    assert any(len(piece) > 6 for piece in pieces)


def test_a_vocabulary_is_every_token_and_what_is_no_text(tokenizer: Tokenizer) -> None:
    vocabulary = vocabulary_of(tokenizer)
    assert len(vocabulary.pieces) == tokenizer.vocab_size
    assert vocabulary.pieces[500] == tokenizer.piece_bytes(500)
    assert vocabulary.special_ids == tokenizer.special_ids
