"""One JSON value, read as it comes: where it ends, and where it can't go on. Keeps nothing of it."""

import re
from itertools import pairwise

WHITE = " \t\r\n"

_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_DIGITS = "0123456789"
_NUMBERS = {"zero", "integer", "fraction", "exponent"}  # states that a number may end in


def _each(characters: str, state: str) -> dict[str, str]:
    return dict.fromkeys(characters, state)


def _literal(word: str) -> dict[str, dict[str, str]]:
    """true is read by the states t, tr and tru."""
    states = [word[: length + 1] for length in range(len(word) - 1)]
    return {a: {b[-1]: b} for a, b in pairwise(states)} | {states[-1]: {word[-1]: "ended"}}


_VALUE = {'"': "string", "-": "minus", "0": "zero", "{": "open", "[": "open", "t": "t", "f": "f", "n": "n"}
_VALUE |= _each("123456789", "integer") | _each(WHITE, "value")
_POWER = _each("eE", "power")
# What each state may go on with, and to which. A value that ends goes to "ended", a bracket to "open" or "close".
_NEXT: dict[str, dict[str, str]] = {
    "value": _VALUE,
    "[": _VALUE | {"]": "close"} | _each(WHITE, "["),
    "{": {'"': "key", "}": "close"} | _each(WHITE, "{"),
    "next key": {'"': "key"} | _each(WHITE, "next key"),
    "colon": {":": "value"} | _each(WHITE, "colon"),
    "after [": {",": "value", "]": "close"} | _each(WHITE, "after ["),
    "after {": {",": "next key", "}": "close"} | _each(WHITE, "after {"),
    "string": {'"': "ended", "\\": "escape"},
    "escape": {"u": "u"} | _each('"\\/bfnrt', "string"),
    "minus": {"0": "zero"} | _each("123456789", "integer"),
    "zero": {".": "point"} | _POWER,
    "integer": {".": "point"} | _POWER | _each(_DIGITS, "integer"),
    "point": _each(_DIGITS, "fraction"),
    "fraction": _POWER | _each(_DIGITS, "fraction"),
    "power": _each("+-", "sign") | _each(_DIGITS, "exponent"),
    "sign": _each(_DIGITS, "exponent"),
    "exponent": _each(_DIGITS, "exponent"),
}
for _at, _to in pairwise(["u", "u1", "u2", "u3", "string"]):
    _NEXT[_at] = _each(_DIGITS + "abcdefABCDEF", _to)
for _word in ("true", "false", "null"):
    _NEXT |= _literal(_word)


def reach(characters: re.Pattern[str], text: str, at: int) -> int:
    """How far the text goes on, from `at`, as the pattern says; `at` if it doesn't."""
    found = characters.match(text, at)
    return found.end() if found else at


class JsonScan:
    """Reads one value from pieces of text, as strictly as RFC 8259. `done` when it is complete; a number is when
    something follows that doesn't belong to it."""

    def __init__(self) -> None:
        self.done = False
        self._state = "value"
        self._open: list[str] = []
        self._in_key = False

    def feed(self, text: str, at: int = 0) -> int:
        """How far the value goes in this piece, from `at`. Short of its end where it is done or can't go on."""
        while at < len(text) and not self.done:
            if self._state == "string":
                at = reach(_PLAIN, text, at)
                if at == len(text):
                    break
            to = _NEXT[self._state].get(text[at])
            if to is not None:
                self._go(to, text[at])
                at += 1
            elif self._state in _NUMBERS:
                self._value_ended()
            else:
                break
        return at

    def _go(self, to: str, character: str) -> None:
        if to == "open":
            self._open.append(character)
            self._state = character
        elif to == "close":
            self._open.pop()
            self._value_ended()
        elif to == "key":
            self._in_key, self._state = True, "string"
        elif to == "ended":
            self._value_ended()
        else:
            self._state = to

    def _value_ended(self) -> None:
        if self._in_key:
            self._in_key, self._state = False, "colon"
        elif self._open:
            self._state = f"after {self._open[-1]}"
        else:
            self.done = True
