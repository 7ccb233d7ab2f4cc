"""Calls written with a tag for each parameter, as Qwen3-Coder's: <function=name><parameter=key>value</parameter>.

Values are plain text; the tool's schema says which are strings. Arguments are told as the JSON object that they mean.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from parkway.text.json_calls import json_calls
from parkway.text.parts import Tools
from parkway.text.reader import Ended, Reader, Steps

VALUE_END = "</parameter>"


def tagged_call(reader: Reader, tools: Tools) -> Steps[None]:
    """A call between <tool_call> and its end; or one in JSON, as models of the same family write."""
    if (yield from reader.next()) in "[{":
        return (yield from json_calls(reader, tools, "</tool_call>"))
    yield from reader.need("<function=")
    yield from xml_call(reader, tools)
    yield from reader.need("</tool_call>")
    reader.settle()


def xml_call(reader: Reader, tools: Tools) -> Steps[None]:
    """A call after <function=."""
    name = yield from reader.name()
    yield from reader.need(">")
    reader.begin_call(name)
    properties = tools[name].parameters.get("properties", {}) if name in tools else {}
    before = "{"
    while (yield from reader.need("<parameter=", "</function>")) == "<parameter=":
        key = yield from reader.name()
        yield from reader.need(">")
        reader.settle()
        reader.tell("arguments", f"{before}{_json(key)}: ")
        yield from _value(reader, allowed_types(properties.get(key)))
        before = ", "
    reader.settle()
    reader.tell("arguments", "{}" if before == "{" else "}")


def _value(reader: Reader, types: frozenset[str]) -> Steps[None]:
    """Tells what stands before the end tag, without the newlines that frame it."""
    yield from _newline(reader)
    if types == {"string"}:
        yield from _string(reader)
    else:
        yield from _other(reader, types)


def _newline(reader: Reader) -> Steps[None]:
    with suppress(Ended):
        yield from reader.one_of("\n")
    reader.settle()


def _string(reader: Reader) -> Steps[None]:
    """A string as it comes: all but what may be the beginning of its end."""
    reader.tell("arguments", '"')
    while (end := reader.text.find(VALUE_END)) < 0:
        held = _end_begun(reader.text)
        reader.tell("arguments", _json(reader.text[:held])[1:-1])
        reader.at = held
        reader.settle()
        if reader.ended:
            reader.tell("arguments", _json(reader.text)[1:-1])
            reader.at = len(reader.text)
            raise Ended
        yield
    reader.tell("arguments", _json(reader.text[:end].removesuffix("\n"))[1:-1] + '"')
    reader.at = end + len(VALUE_END)
    reader.settle()


def _end_begun(text: str) -> int:
    """Where the end of a value begins that the text ends within, perhaps; the length of the text if none does."""
    marker = "\n" + VALUE_END
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith((marker[:length], VALUE_END[:length])):
            return len(text) - length
    return len(text)


def _other(reader: Reader, types: frozenset[str]) -> Steps[None]:
    while (end := reader.text.find(VALUE_END, max(0, reader.at - len(VALUE_END)))) < 0:
        reader.at = len(reader.text)
        if reader.ended:
            reader.tell("arguments", _meant(reader.text, types))
            raise Ended
        yield
    reader.tell("arguments", _meant(reader.text[:end].removesuffix("\n"), types))
    reader.at = end + len(VALUE_END)
    reader.settle()


def _meant(text: str, types: frozenset[str]) -> str:
    """The value as JSON: as it stands where it is JSON of a type that the schema allows, otherwise as a string."""
    plain = text.strip()
    if types == {"boolean"}:
        plain = plain.lower()  # Python's True, which models write too
    try:
        value = json.loads(plain, parse_constant=_refused)
    except (ValueError, RecursionError):
        return _json(text)
    return plain if not types or types & _names_of(value) else _json(text)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _names_of(value: object) -> set[str]:
    """What a schema may call the type of this value."""
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number", "integer"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
    return {"object"}


def allowed_types(schema: object) -> frozenset[str]:
    """The types that a schema allows; none where it doesn't say."""
    if not isinstance(schema, Mapping):
        return frozenset()
    if isinstance(named := schema.get("type"), str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(each for each in named if isinstance(each, str))
    if isinstance(values := schema.get("enum"), list):
        return frozenset[str]().union(*map(_names_of, values))
    alternatives = [allowed_types(each) for each in schema.get("anyOf", schema.get("oneOf", ()))]
    return frozenset[str]().union(*alternatives) if all(alternatives) else frozenset()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
