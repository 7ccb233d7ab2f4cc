"""OpenAI's harmony format: an answer is messages; the header of each has a channel, and perhaps who it is for."""

import re
from collections.abc import Mapping
from contextlib import suppress

from parkway.text.answer_parser import AnswerParser
from parkway.text.call_grammar import Around, Thought, answer_grammar, calls_rules, checked, json_arguments, sequence
from parkway.text.grammar import lark
from parkway.text.parts import Kind, Parser, Tool
from parkway.text.prose import Markers, attempt, prose
from parkway.text.reader import Ended, Malformed, Reader, Steps

START, CHANNEL, CONSTRAIN, MESSAGE, END = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"
ANALYSIS, FINAL = f"{CHANNEL}analysis{MESSAGE}", f"{CHANNEL}final{MESSAGE}"

_AROUND = Around(f"{CHANNEL}commentary to=functions.NAME {CONSTRAIN}json{MESSAGE}")
_BEGINS = Markers(START, CHANNEL)
_ENDS = Markers(START, CHANNEL, END, "<|call|>", "<|return|>")
_HEADER = r"[A-Za-z0-9_ .=:\/-]"
_WORDS = re.compile(f"{_HEADER}*")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.:/-]+)", re.ASCII)


class HarmonyDialect:
    """gpt-oss. A call ends the answer, so there is never a second one."""

    name = "gpt-oss"
    shown = (START, CHANNEL, CONSTRAIN, MESSAGE, END)
    thought_marks = (CHANNEL,)

    def parser(self, *, tools: tuple[Tool, ...], thinking: bool) -> Parser:
        return AnswerParser(lambda reader: _answer(reader, tools=bool(tools), thinking=thinking))

    def within_thought(self, prompt: str) -> bool:
        return prompt.endswith(ANALYSIS)

    def written_call(self, name: str, arguments: str) -> str:
        return _AROUND.text(name, arguments)

    def calls(self, tools: tuple[Tool, ...], *, parallel: bool, thinking: bool, special: Mapping[str, int]) -> str:
        rules = calls_rules(_AROUND, tools, json_arguments, parallel=False, special=special)
        return answer_grammar(rules, _thought(special), thinking=thinking, special=special)

    def held(
        self, tools: tuple[Tool, ...], *, parallel: bool, thinking: bool, special: Mapping[str, int]
    ) -> str | None:
        if any(mark not in special for mark in self.shown):
            return None
        return checked(lark(_held(tools, thinking=thinking, special=special)))

    def content(
        self, grammar: str, tools: tuple[Tool, ...], *, parallel: bool, thinking: bool, special: Mapping[str, int]
    ) -> str:
        rules = calls_rules(_AROUND, tools, json_arguments, parallel=False, special=special) if tools else ""
        final = sequence(FINAL, special)
        thought = _thought(special)
        return answer_grammar(rules, thought, thinking=thinking, special=special, content=grammar, before_content=final)


def _held(tools: tuple[Tool, ...], *, thinking: bool, special: Mapping[str, int]) -> str:
    """Lark of messages, of which one to a tool, in whichever order its header is, is the last."""
    channel, constrain, message, end, start = (f"<[{special[m]}]>" for m in (CHANNEL, CONSTRAIN, MESSAGE, END, START))
    said = f"BODY ({end} ({start} message)?)?"
    calls, recipients = [], []
    for index, tool in enumerate(tools):
        to, name = f"TO_{index}", re.escape(tool.name).replace("/", "\\/")
        header = f'(WORDS {channel} {to} | {to} {channel} WORDS) (" " WORDS)? ({constrain} WORDS)? {message}'
        calls.append(f"  | {header} {json_arguments(tool, index)[0]}")
        recipients.append(f"{to}: /{_HEADER}*to=functions\\.{name}/ & ~/.*to=.*to=.*/")
    return "\n".join(
        (
            f"start: {said}" if thinking else "start: message?",
            f"message: WORDS {channel} WORDS ({constrain} WORDS)? {message} {said}",
            *calls,
            "BODY: /(?s:.*)/",
            f"WORDS: /{_HEADER}*/ & ~/.*to=.*/",
            *recipients,
        )
    )


def _thought(special: Mapping[str, int]) -> Thought:
    return Thought(ANALYSIS, END, sequence(f"{START}assistant", special))


def _answer(reader: Reader, *, tools: bool, thinking: bool) -> Steps[None]:
    """A whole answer. `thinking`: it begins within a message of analysis."""
    marker = END
    if thinking:
        marker = yield from prose(reader, "reasoning", _ENDS)
    elif (yield from _begins_with_recipient(reader)):
        marker = START
    while marker:
        if marker in (START, CHANNEL):
            marker = yield from _message(reader, tools)
        else:
            reader.settle()
            marker = yield from prose(reader, "content", _BEGINS)


def _begins_with_recipient(reader: Reader) -> Steps[bool]:
    """The prompt has told who speaks; whom to may be what the answer begins with."""
    begins = False
    with suppress(Ended):
        yield from reader.next()
        begins = bool((yield from reader.one_of("to=")))
    reader.at = reader.retry = 0
    return begins


def _message(reader: Reader, tools: bool) -> Steps[str]:
    """A message after the marker that its header begins with; the marker that ends it."""
    kinds: list[Kind] = []
    yield from attempt(reader, _header(reader, tools, kinds))
    return (yield from prose(reader, kinds[0] if kinds else "content", _ENDS))


def _header(reader: Reader, tools: bool, kinds: list[Kind]) -> Steps[None]:
    """Reads a header and, where it is a call, its arguments; otherwise puts what kind the message is into `kinds`."""
    marker = ""
    while marker != MESSAGE:
        yield from reader.run(_WORDS)
        marker = yield from reader.one_of(CHANNEL, CONSTRAIN, MESSAGE)
        if not marker:
            raise Malformed
    header = reader.text[: reader.at]
    recipient = _RECIPIENT.search(header)
    reader.settle()
    if recipient and tools and (yield from _object_follows(reader)):
        reader.begin_call(recipient[1])
        yield from reader.arguments()
    else:
        kinds.append("reasoning" if f"{CHANNEL}analysis" in header else "content")


def _object_follows(reader: Reader) -> Steps[bool]:
    try:
        return (yield from reader.next()) == "{"
    except Ended:
        return False
