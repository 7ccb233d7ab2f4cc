"""The text of one answer while it comes: what is read, what is told, what is held until it is clear. Knows no marker.

Those who read calls are generators over it: they yield where they need more text, and so follow a grammar line by line.
"""

import re
from collections.abc import Generator
from typing import TypeVar

from parkway.text.json_scan import WHITE, JsonScan, reach
from parkway.text.parts import Kind, Part

T = TypeVar("T")
Steps = Generator[None, None, T]

_SPACE = re.compile(f"[{WHITE}]*")
_NAME = re.compile(r"[\w.:/-]*", re.ASCII)


class Malformed(Exception):
    """What was taken for a call is none, or doesn't go on as one."""


class Ended(Malformed):
    """The answer ended before that was clear."""


class Reader:
    """`text` is what has come and isn't settled: neither told nor known to be a marker. `at`: how far it is read.

    `retry`: how much of it is content for certain if it turns out not to be a call. `closing`: whether a call was told
    whole, so that what may still come is markers.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.retry = 0
        self.ended = False
        self.closing = False
        self.parts: list[Part] = []
        self.last: Kind = "content"
        self._call = -1

    def tell(self, kind: Kind, text: str) -> None:
        """A part, or more of the last one."""
        if not text:
            return
        call = self._call if kind in ("call", "arguments") else -1
        if self.parts and kind != "call" and self.parts[-1].kind == kind:
            text = self.parts.pop().text + text
        self.parts.append(Part(kind, text, call))
        self.last = kind

    def settle(self) -> None:
        """Nothing of what is read will be told, or told again."""
        self.text = self.text[self.at :]
        self.at = self.retry = 0

    def begin_call(self, name: str) -> None:
        """Tells a call. From here on it is one, whatever comes."""
        self._call += 1
        self.tell("call", name)
        self.settle()
        self.closing = True

    def more(self) -> Steps[None]:
        """Waits for more text. Raises Ended if there is none."""
        if self.ended:
            raise Ended
        yield

    def next(self) -> Steps[str]:
        """Reads whitespace; the character after it, which isn't read."""
        while True:
            self.at = reach(_SPACE, self.text, self.at)
            if self.at < len(self.text):
                return self.text[self.at]
            yield from self.more()

    def one_of(self, *literals: str) -> Steps[str]:
        """Reads the literal that follows; "" if none does. None may begin with another."""
        longest = max(map(len, literals))
        while True:
            rest = self.text[self.at : self.at + longest]
            for literal in literals:
                if rest.startswith(literal):
                    self.at += len(literal)
                    return literal
            if not any(literal.startswith(rest) for literal in literals):
                return ""
            yield from self.more()

    def need(self, *literals: str) -> Steps[str]:
        """Reads whitespace and the literal that follows. Raises Malformed if none does."""
        yield from self.next()
        found = yield from self.one_of(*literals)
        if not found:
            raise Malformed
        return found

    def name(self) -> Steps[str]:
        """Reads whitespace and a name. Raises Malformed if none follows."""
        yield from self.next()
        found = yield from self.run(_NAME)
        if not found:
            raise Malformed
        return found

    def run(self, characters: re.Pattern[str]) -> Steps[str]:
        """Reads all that this matches, any number of characters of a class."""
        while (end := reach(characters, self.text, self.at)) == len(self.text):
            yield from self.more()
        found, self.at = self.text[self.at : end], end
        return found

    def value(self) -> Steps[str]:
        """Reads a JSON value; its text. Raises Malformed."""
        begin, scan = self.at, JsonScan()
        while True:
            self.at = scan.feed(self.text, self.at)
            if scan.done:
                return self.text[begin : self.at]
            if self.at < len(self.text):
                raise Malformed
            yield from self.more()

    def arguments(self) -> Steps[None]:
        """Tells a JSON object as it comes. Raises Malformed where it can't go on; all before is told."""
        scan = JsonScan()
        while True:
            end = scan.feed(self.text, self.at)
            self.tell("arguments", self.text[self.at : end])
            self.at = end
            self.settle()
            if scan.done:
                return
            if self.text:
                raise Malformed
            yield from self.more()
