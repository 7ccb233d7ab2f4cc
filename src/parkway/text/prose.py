"""Text between markers: told as it comes, but for what may be the beginning of a marker. Knows no dialect."""

import re

from parkway.text.json_scan import WHITE
from parkway.text.parts import Kind
from parkway.text.reader import Ended, Malformed, Reader, Steps


class Markers:
    """Texts to be looked for. None may begin with another."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self._firsts = {text[0] for text in texts}
        self._longest = max(map(len, texts), default=0)
        self._pattern = re.compile("|".join(map(re.escape, texts)))

    def find(self, text: str) -> re.Match[str] | None:
        return None if self._firsts.isdisjoint(text) else self._pattern.search(text)

    def held(self, text: str) -> int:
        """How much of a text without a marker is safe to tell: a marker may begin in its end, and whitespace before
        a marker is never told."""
        if not self._texts:
            return len(text)
        safe = len(text) if self._firsts.isdisjoint(text) else self._begun(text)
        return len(text[:safe].rstrip(WHITE))

    def _begun(self, text: str) -> int:
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[at] in self._firsts and any(marker.startswith(text[at:]) for marker in self._texts):
                return at
        return len(text)


def prose(reader: Reader, kind: Kind, markers: Markers) -> Steps[str]:
    """Tells text up to a marker, which is read; the marker, or "" where the answer ended before one came."""
    while (found := markers.find(reader.text)) is None:
        reader.at = markers.held(reader.text)
        reader.tell(kind, reader.text[: reader.at])
        reader.settle()
        if reader.ended:
            _tell_held(reader, kind)
            return ""
        yield
    reader.at = len(reader.text[: found.start()].rstrip(WHITE))
    reader.tell(kind, reader.text[: reader.at])
    length = found.end() - reader.at
    reader.settle()
    reader.at = reader.retry = length
    return found.group()


def _tell_held(reader: Reader, kind: Kind) -> None:
    """Whitespace after a call belongs to the call's markers."""
    after_call = reader.last in ("call", "arguments")
    reader.at = len(reader.text)
    if not (after_call and reader.text.isspace()):
        reader.tell(kind, reader.text)
    reader.settle()


def attempt(reader: Reader, call: Steps[None]) -> Steps[None]:
    """Reads what may be a call; what isn't one is content. Whatever it has not settled is to be read again."""
    reader.closing = False
    try:
        yield from call
        reader.at = 0
    except Malformed as failure:
        whole = isinstance(failure, Ended) and reader.closing
        reader.at = len(reader.text) if whole else reader.retry
        reader.tell("content", "" if whole else reader.text[: reader.at])
        reader.settle()
