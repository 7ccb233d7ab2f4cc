"""Reads llama.cpp's grammar notation. Knows what it says, not what is made of it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_TIMES = re.compile(r"[*+?]|\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_CHARACTER = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([nrt\"\\\[\]^-]))|([^\\])", re.DOTALL
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_SYMBOLS: Mapping[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
MOST_NESTED = 50
"""Groups within groups."""


class GbnfError(ValueError):
    """The text is not a grammar; says where."""


@dataclass(frozen=True, slots=True)
class Set:
    """One character out of ranges of code points, or out of all others."""

    ranges: tuple[tuple[int, int], ...]
    others: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """At least `low` times, at most `high`; None is any number."""

    part: "Node"
    low: int
    high: int | None


Node = Set | Rule | Sequence | Choice | Repeat


class Reader:
    """Reads the notation from left to right."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._nested = 0

    def rules(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        self._skip(lines=True)
        while self._at < len(self._source):
            name = self._match(_NAME, "the name of a rule")[0]
            self._skip()
            self._expect("::=")
            self._skip(lines=True)
            if name in rules:
                raise self._error(f"the rule {name} is there twice")
            rules[name] = self._choice(lines=False)
            if not self._ended:
                raise self._error("a rule must end with its line")
            self._skip(lines=True)
        return rules

    @property
    def _next(self) -> str:
        return self._source[self._at : self._at + 1]

    @property
    def _ended(self) -> bool:
        return self._next in ("", "\r", "\n")

    def _choice(self, *, lines: bool) -> Node:
        options = [self._sequence(lines=lines)]
        while self._continues():
            self._at += 1
            self._skip(lines=True)
            options.append(self._sequence(lines=lines))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _continues(self) -> bool:
        """Whether another option follows, be it on a line of its own."""
        found = _BLANK_LINES.match(self._source, self._at)
        end = found.end() if found else self._at
        if self._source[end : end + 1] != "|":
            return False
        self._at = end
        return True

    def _sequence(self, *, lines: bool) -> Node:
        parts: list[Node] = []
        self._skip(lines=lines)
        while self._next not in ("", "|", ")", "\r", "\n"):
            parts.append(self._repeated(self._part()))
            self._skip(lines=lines)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _part(self) -> Node:
        match self._next:
            case '"':
                return self._text()
            case "[":
                return self._set()
            case "(":
                return self._group()
            case ".":
                self._at += 1
                return Set((), others=True)
            case _:
                return Rule(self._match(_NAME, "a string, a set of characters, a group or a rule")[0])

    def _group(self) -> Node:
        self._at += 1
        self._nested += 1
        if self._nested > MOST_NESTED:
            raise self._error("groups are nested too deeply")
        group = self._choice(lines=True)
        self._skip(lines=True)
        self._expect(")")
        self._nested -= 1
        return group

    def _text(self) -> Node:
        self._at += 1
        codes = list(self._characters('"'))
        return Sequence(tuple(Set(((code, code),)) for code in codes))

    def _set(self) -> Node:
        self._at += 1
        others = self._next == "^"
        self._at += others
        ranges: list[tuple[int, int]] = []
        while self._next != "]":
            low = high = self._character()
            if self._source[self._at : self._at + 1] == "-" and self._source[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._character()
            if high < low:
                raise self._error("a range of characters ends before it begins")
            ranges.append((low, high))
        self._at += 1
        if not ranges and not others:
            raise self._error("a set without characters allows nothing")
        return Set(tuple(ranges), others)

    def _repeated(self, part: Node) -> Node:
        self._skip()
        while found := _TIMES.match(self._source, self._at):
            self._at = found.end()
            low, comma, high = found[1] or "", found[2], found[3] or ""
            if found[0] in _SYMBOLS:
                times = _SYMBOLS[found[0]]
            elif not low and not high:
                raise self._error("a repetition without a number")
            else:
                times = int(low or 0), (int(high) if high else None) if comma else int(low)
            if times[1] is not None and times[1] < times[0]:
                raise self._error("a repetition of at most less than at least")
            part = Repeat(part, *times)
            self._skip()
        return part

    def _characters(self, end: str) -> Iterator[int]:
        while self._next != end:
            yield self._character()
        self._at += 1

    def _character(self) -> int:
        found = self._match(_CHARACTER, "a character, or an escape that is known")
        code = next((int(digits, 16) for digits in found.groups()[:3] if digits), None)
        if code is None:
            code = ord(_ESCAPES.get(found[4], found[4]) if found[4] else found[5])
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise self._error("a code point that is no character")
        return code

    def _skip(self, *, lines: bool = False) -> None:
        found = (_BLANK_LINES if lines else _BLANK).match(self._source, self._at)
        self._at = found.end() if found else self._at

    def _match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        found = pattern.match(self._source, self._at)
        if found is None:
            raise self._error(f"there must be {what}")
        self._at = found.end()
        return found

    def _expect(self, text: str) -> None:
        if not self._source.startswith(text, self._at):
            raise self._error(f"there must be {text}")
        self._at += len(text)

    def _error(self, what: str) -> GbnfError:
        line = self._source.count("\n", 0, self._at) + 1
        return GbnfError(f"line {line}: {what}")
