"""From the tokens of one answer to text that may be sent: whole characters, cut at stop strings. Knows no request."""

from codecs import utf_8_decode

from parkway.text.tokenizer import Tokenizer


class TextStream:
    """Token ids in, text out, the same text however it is split into tokens.

    The answer ends where the earliest stop string begins. So a stop string within another, longer one that has
    begun before it waits until the longer one is complete or ruled out. `hidden` tokens have no text: all special
    ones, unless told.
    """

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...] = (), hidden: frozenset[int] | None = None) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if hidden is None else hidden
        self._stop = stop
        self._firsts = {text[0] for text in stop}
        self._longest = max(map(len, stop), default=0)
        self._bytes = b""  # the beginning of a character
        self._held = ""  # the beginning of a stop string, perhaps
        self.stop_string: str | None = None
        """The one that ended the answer, if one did. Known at the latest after `finish`."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string ended the answer. True at the latest after `finish`."""
        return self.stop_string is not None

    def push(self, token_id: int) -> str:
        """The text that this token makes safe to send; "" after the stop."""
        if token_id in self._hidden or self.stop_string is not None:
            return ""
        received = self._bytes + self._tokenizer.piece_bytes(token_id)
        text, used = utf_8_decode(received, "replace", False)
        self._bytes = received[used:]
        return self._release(text) if self._stop else text

    def finish(self) -> str:
        """What was held back and turned out to be text; half a character becomes U+FFFD. The last call."""
        if self.stopped:
            return ""
        text = self._held + self._bytes.decode(errors="replace")
        self._bytes, self._held = b"", ""
        cut, self.stop_string = self._stop_in(text)
        return text[:cut]

    def _release(self, text: str) -> str:
        text = self._held + text
        if self._firsts.isdisjoint(text):
            return text
        begun = self._begun_in(text)
        cut, found = self._stop_in(text)
        self.stop_string = found if cut <= begun else None
        safe = min(cut, begun)
        self._held = "" if self.stopped else text[safe:]
        return text[:safe]

    def _stop_in(self, text: str) -> tuple[int, str | None]:
        """Where the earliest complete stop string begins, and that, the shortest of those that begin there; the length
        of the text if none does."""
        found = [(at, len(stop), stop) for stop in self._stop if (at := text.find(stop)) >= 0]
        if not found:
            return len(text), None
        at, _, stop = min(found)
        return at, stop

    def _begun_in(self, text: str) -> int:
        """Where the earliest stop string begins that the text ends within; the length of the text if none does."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[at] in self._firsts and any(stop.startswith(text[at:]) for stop in self._stop):
                return at
        return len(text)
