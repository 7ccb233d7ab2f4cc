"""A parser of one answer, out of a generator that reads it."""

from collections.abc import Callable

from parkway.text.parts import Part
from parkway.text.reader import Reader, Steps


class AnswerParser:
    """`read` is given the text as a reader, and goes on each time that more has come."""

    def __init__(self, read: Callable[[Reader], Steps[None]]) -> None:
        self._reader = Reader()
        self._steps = read(self._reader)

    def push(self, text: str) -> list[Part]:
        self._reader.text += text
        return self._go_on()

    def finish(self) -> list[Part]:
        self._reader.ended = True
        return self._go_on()

    def _go_on(self) -> list[Part]:
        parts: list[Part] = []
        self._reader.parts = parts
        next(self._steps, None)
        return parts
