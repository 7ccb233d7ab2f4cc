"""JSON Schemas made ready for llguidance. Knows what it makes of a schema, and no text or token."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from math import lcm
from typing import Any

WHITESPACE = r" |\n[ \t]{0,20}"
"""Wherever JSON allows any: none, a space, or a line break and an indent. Without a bound a small model, unsure how to
go on, breaks lines to the end of its context."""
MOST_MULTIPLE = 100_000
"""llguidance tries as many remainders; for two fields of a schema that may be one value it tries their product."""

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (*("items", "additionalProperties", "not", "if", "then", "else"), "contains", "propertyNames")
_COMBINED = {"$ref", "anyOf", "oneOf", "$dynamicRef", "patternProperties", "if", "dependentSchemas"}
_OPENED = {"additionalProperties", "unevaluatedProperties"}


class SchemaError(ValueError):
    pass


def prepared(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as it is kept to. Raises SchemaError."""
    check_multiples(schema)
    return {**closed(schema), "x-guidance": {"whitespace_pattern": WHITESPACE}}


def closed(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object that lists properties and does not say whether others are allowed has no others, as llama-server reads
    it and as OpenAI's strict mode demands it; an answer is valid by either reading. Only where schemas are combined, so
    that one may allow what another lists, it stays open."""
    whole: Mapping[str, Any] = schema if any(map(_combines, _subschemas(schema))) else _closed(schema)
    return whole


def _combines(schema: Mapping[str, Any]) -> bool:
    """Whether it takes what is allowed together with other schemas, or might."""
    return "allOf" in schema or ("properties" in schema and not _COMBINED.isdisjoint(schema))


def _closed(schema: Any) -> Any:
    """The schema with every object in it closed that does not say."""
    if not isinstance(schema, Mapping):
        return schema
    closed = dict(schema)
    for key in _NAMED:
        if isinstance(schema.get(key), Mapping):
            closed[key] = {name: _closed(each) for name, each in schema[key].items()}
    for key in (*_LISTED, *_SINGLE):
        if isinstance(schema.get(key), list):
            closed[key] = [_closed(each) for each in schema[key]]
        elif key in schema:
            closed[key] = _closed(schema[key])
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list) or not _OPENED.isdisjoint(schema):
        return closed
    return {**closed, "additionalProperties": False} if properties.keys() >= set(map(str, required)) else closed


def _subschemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """It and all in it."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for key in _NAMED:
        if isinstance(schema.get(key), Mapping):
            for each in schema[key].values():
                yield from _subschemas(each)
    for key in (*_LISTED, *_SINGLE):
        each = schema.get(key)
        for part in each if isinstance(each, list) else [each]:
            yield from _subschemas(part)


def check_multiples(schema: Mapping[str, Any]) -> None:
    """Raises SchemaError for numbers that would take llguidance for ever."""
    values = [each for each in _values_of(schema, "multipleOf") if type(each) in (int, float)]
    numbers = [Decimal(str(each)) for each in values]
    positive = [number for number in numbers if number.is_finite() and number > 0]
    if any(number.adjusted() > 20 or number.as_tuple().exponent < -20 for number in positive):  # type: ignore[operator]
        raise SchemaError("multipleOf is too large or too small a number")
    scale = max((-int(number.as_tuple().exponent) for number in positive), default=0)
    if lcm(*(int(number.scaleb(max(0, scale))) for number in positive)) > MOST_MULTIPLE:
        raise SchemaError(f"what its numbers are multiples of has more than {MOST_MULTIPLE} remainders")


def _values_of(whole: Any, name: str) -> Iterator[Any]:
    """Whatever stands under that name, wherever in it: a reference may make a schema of anything."""
    if isinstance(whole, Mapping):
        if name in whole:
            yield whole[name]
        for each in whole.values():
            yield from _values_of(each, name)
    elif isinstance(whole, list):
        for each in whole:
            yield from _values_of(each, name)
