"""Calls written as JSON objects with the tool's name in them: {"name": …, "arguments": …}, alone or in a list."""

import json
from collections.abc import Collection

from parkway.text.parts import Tools
from parkway.text.reader import Malformed, Reader, Steps

_ARGUMENTS = ("arguments", "parameters")
_BESIDE = ("id", "type")  # what else a call may begin with


def json_calls(reader: Reader, tools: Tools, closing: str = "", known: bool = False) -> Steps[None]:
    """Objects, or a list of them, up to `closing`. Only calls of `known` tools where any JSON may stand there."""
    names = tools.keys() if known else None
    if (yield from reader.next()) == "[":
        yield from _list(reader, names)
    else:
        yield from _row(reader, names)
    if closing:
        yield from reader.need(closing)
        reader.settle()


def _list(reader: Reader, names: Collection[str] | None) -> Steps[None]:
    yield from reader.need("[")
    yield from _call(reader, names)
    while (yield from reader.need(",", "]")) == ",":
        reader.closing = False  # from here on there may be a call or not
        yield from _call(reader, names)
    reader.settle()


def _row(reader: Reader, names: Collection[str] | None) -> Steps[None]:
    """Objects that nothing separates but a semicolon, perhaps."""
    yield from _call(reader, names)
    while (yield from reader.next()) in "{;":
        reader.closing = False
        yield from reader.one_of(";")
        yield from _call(reader, names)


def _call(reader: Reader, names: Collection[str] | None) -> Steps[None]:
    """One object. Nothing is told before both its name and the beginning of its arguments are known."""
    yield from reader.need("{")
    name = arguments = ""
    told = False
    while True:
        key, first = yield from _key(reader)
        if told or key in _BESIDE:
            yield from reader.value()
        elif key in _ARGUMENTS and first == "{" and not arguments:
            if name:
                told = True
                reader.begin_call(name)
                yield from reader.arguments()
            else:
                arguments = yield from reader.value()
        elif key == "name" and first == '"':
            name = json.loads((yield from reader.value()))
            if not name or (names is not None and name not in names):
                raise Malformed
            if arguments:
                told = True
                reader.begin_call(name)
                reader.tell("arguments", arguments)
        else:
            raise Malformed
        if (yield from reader.need(",", "}")) == "}":
            break
    if not told:
        raise Malformed
    reader.settle()


def _key(reader: Reader) -> Steps[tuple[str, str]]:
    """A key, and the first character of its value."""
    if (yield from reader.next()) != '"':
        raise Malformed
    key: str = json.loads((yield from reader.value()))
    yield from reader.need(":")
    return key, (yield from reader.next())
