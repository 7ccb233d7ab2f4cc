"""One answer's text read by a dialect's parser, token by token. Knows no token id and no request."""

from parkway.text.parts import Parser, Part


class Reading:
    """Text in, parts out. `thinking`: the answer begins within a thought, later whether what came last is one.

    Where it doesn't tell thoughts they are content. With `one_call` the answer ends where a second call would begin.
    """

    def __init__(self, parser: Parser, thinking: bool, *, tells_thoughts: bool, one_call: bool) -> None:
        self.thinking = thinking
        self.called = False
        self.ended = False
        self._parser = parser
        self._tells_thoughts = tells_thoughts
        self._one_call = one_call

    def push(self, text: str) -> list[Part]:
        return self._kept(self._parser.push(text)) if text else []

    def finish(self) -> list[Part]:
        """What was held back. The last call."""
        return self._kept(self._parser.finish())

    def _kept(self, parts: list[Part]) -> list[Part]:
        if self.ended or not parts:
            return []
        for index, part in enumerate(parts):
            if part.kind == "call":
                if self.called and self._one_call:
                    self.ended = True
                    return parts[:index]
                self.called = True
        self.thinking = parts[-1].kind == "reasoning"
        return parts if self._tells_thoughts else [_content(part) for part in parts]


def _content(part: Part) -> Part:
    return part._replace(kind="content") if part.kind == "reasoning" else part
