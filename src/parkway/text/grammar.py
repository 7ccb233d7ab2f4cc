"""What a client asks of an answer's form, as llguidance's serialised grammar. Knows no model: a grammar is about text.

A grammar is compiled here before it is sent down, so that a wrong one is the client's error and not an answer's. All
that a client can send is bounded: its length, how deep it nests, how much llguidance may work on it.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from llguidance import LLTokenizer, regex_to_lark

from parkway.errors import BadRequest
from parkway.request import Vocabulary
from parkway.runner.compiled import compiled
from parkway.text.gbnf import lark_of_gbnf
from parkway.text.schema import prepared
from parkway.text.tokenizer import Tokenizer

Kind = Literal["json_object", "json_schema", "regex", "lark", "gbnf"]

MOST_CHARACTERS = {"json_schema": 128 * 1024, "regex": 128 * 1024, "lark": 32 * 1024, "gbnf": 32 * 1024}
MOST_RULES = 1000
"""Lines of a Lark grammar, rules of a GBNF one: llguidance's work on long chains of them grows with their square."""
_NAMES = {"json_schema": "JSON Schema", "regex": "regular expression", "lark": "Lark grammar", "gbnf": "GBNF grammar"}
_DECODER = json.JSONDecoder()
_PLACE = re.compile(r"^(at )?\d+\(\d+\): |^failed to compile JSON schema: | \(in regex\)")
_MOST_TOLD = 300


def grammar_of(kind: Kind, source: str | Mapping[str, Any], param: str) -> str:
    """The grammar of a client's wish, checked. Raises BadRequest(param) for whatever is invalid or not supported.

    `json_object` ignores the source. A schema may be text too. May take some tenths of a second for the largest that is
    allowed, without the GIL: an event loop asks a thread.
    """
    try:
        grammar = lark(_lark_of(kind, source))
        if error := _fault(grammar):
            raise ValueError(error)
    except (ValueError, RecursionError) as error:
        raise BadRequest(param, f"{param} is no {_NAMES[kind]} that can be kept to: {_told(error)}") from None
    return grammar


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """What an engine is told of a tokenizer before it can keep to a grammar."""
    return Vocabulary([tokenizer.piece_bytes(i) for i in range(tokenizer.vocab_size)], tokenizer.special_ids)


def lark(source: str) -> str:
    """A Lark grammar of our own, serialised; not checked."""
    return json.dumps({"grammars": [{"lark_grammar": source}]})


def json_rule(schema: Mapping[str, Any]) -> str:
    """Right side of a Lark rule: JSON that a schema allows. Raises ValueError, RecursionError."""
    return "%json " + json.dumps(prepared(schema))


def _lark_of(kind: Kind, source: str | Mapping[str, Any]) -> str:
    if kind == "json_object":
        return "start: " + json_rule({"type": "object"})
    if kind == "json_schema":
        return "start: " + json_rule(_schema_of(source))
    if not isinstance(source, str):
        raise ValueError(f"it must be a text, not {type(source).__name__}")
    _check_length(source, kind)
    if kind == "regex":
        return f"start: /{regex_to_lark(source)}/" if source else 'start: ""'
    if kind == "gbnf":
        _check_rules(source.count("::="))
        return lark_of_gbnf(source)
    _check_rules(source.count("\n"))
    return _with_schemas_prepared(source)


def _schema_of(source: str | Mapping[str, Any]) -> Mapping[str, Any]:
    _check_length(source if isinstance(source, str) else json.dumps(source), "json_schema")
    schema = json.loads(source) if isinstance(source, str) else source
    if not isinstance(schema, Mapping):
        raise ValueError(f"a schema must be an object, not {type(schema).__name__}")
    return schema


def _with_schemas_prepared(source: str) -> str:
    """A Lark grammar whose `%json` blocks are kept to like any schema."""
    before, *blocks = re.split(r"%json\b", source)
    for block in blocks:
        schema, end = _DECODER.raw_decode(block.lstrip())
        before += json_rule(_schema_of(schema)) + block.lstrip()[end:]
    return before


def _check_length(text: str, kind: Kind) -> None:
    if len(text) > MOST_CHARACTERS[kind]:
        raise ValueError(f"it has {len(text)} characters, more than {MOST_CHARACTERS[kind]}")


def _check_rules(rules: int) -> None:
    if rules > MOST_RULES:
        raise ValueError(f"it has {rules} rules or lines, more than {MOST_RULES}")


def _fault(grammar: str) -> str:
    """What is wrong with a grammar; "" if text can be made by it."""
    matcher = compiled(_bytes(), grammar)
    if matcher.is_error():
        return matcher.get_error()
    allowed, error = any(matcher.compute_bitmask()), matcher.get_error()
    return error if allowed and not error.startswith("NoExtensionBias") else "it allows no text"


@cache
def _bytes() -> LLTokenizer:
    """A vocabulary of a token for each byte."""
    return LLTokenizer("byte")


def _told(error: BaseException) -> str:
    """What a library says of an error, in a line; those below show places in a grammar that the client never wrote."""
    line = str(error).strip().split("\n")[0]
    if isinstance(error, RecursionError):
        return "it nests too deeply"
    if "unknown special token" in line:  # the library lists those that its byte vocabulary has
        return "it names a special token"
    while found := _PLACE.search(line):
        line = line[: found.start()] + line[found.end() :]
    return line if len(line) <= _MOST_TOLD else line[:_MOST_TOLD] + "…"
