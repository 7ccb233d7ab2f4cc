"""Calls written as a header with the tool's name, and after it the arguments as a JSON object."""

from typing import NamedTuple

from parkway.text.json_calls import json_calls
from parkway.text.parts import Tools
from parkway.text.reader import Malformed, Reader, Steps


def mistral_call(reader: Reader, tools: Tools) -> Steps[None]:
    """name[ARGS]{…}, with a [CALL_ID] before the arguments or not; or, as older models write, a JSON list."""
    if (yield from reader.next()) in "[{":
        return (yield from json_calls(reader, tools))
    name = yield from reader.name()
    if (yield from _follows(reader, "[CALL_ID]")):
        yield from reader.name()
    yield from _follows(reader, "[ARGS]")
    yield from _arguments(reader, name)


def llama_call(reader: Reader, tools: Tools) -> Steps[None]:
    """name>{…}</function>."""
    name = yield from reader.name()
    yield from reader.need(">")
    yield from _arguments(reader, name)
    yield from _closed(reader, "</function>")


class _DeepSeek(NamedTuple):
    calls: str = "<\uff5ctool\u2581calls\u2581begin\uff5c>"
    calls_end: str = "<\uff5ctool\u2581calls\u2581end\uff5c>"
    call: str = "<\uff5ctool\u2581call\u2581begin\uff5c>"
    call_end: str = "<\uff5ctool\u2581call\u2581end\uff5c>"
    separator: str = "<\uff5ctool\u2581sep\uff5c>"


DEEPSEEK = _DeepSeek()


def deepseek_calls(reader: Reader, tools: Tools) -> Steps[None]:
    """Calls between markers: R1's with the kind before the name and the arguments in a fence, V3.1's without both."""
    marker = yield from reader.need(DEEPSEEK.call)
    while marker == DEEPSEEK.call:
        reader.closing = False
        name = yield from reader.name()
        yield from reader.need(DEEPSEEK.separator)
        if (yield from reader.next()) != "{":
            name = yield from reader.name()
            yield from reader.need("```json")
        yield from _arguments(reader, name)
        yield from _follows(reader, "```")
        yield from _closed(reader, DEEPSEEK.call_end)
        marker = yield from reader.need(DEEPSEEK.call, DEEPSEEK.calls_end)
    reader.settle()


def _follows(reader: Reader, literal: str) -> Steps[bool]:
    """Reads whitespace and the literal, if it is there."""
    yield from reader.next()
    return bool((yield from reader.one_of(literal)))


def _arguments(reader: Reader, name: str) -> Steps[None]:
    if (yield from reader.next()) != "{":
        raise Malformed
    reader.begin_call(name)
    yield from reader.arguments()


def _closed(reader: Reader, literal: str) -> Steps[None]:
    yield from reader.need(literal)
    reader.settle()
