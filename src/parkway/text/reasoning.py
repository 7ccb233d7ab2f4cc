"""Thoughts between two markers at the beginning of an answer, as <think>…</think>."""

from contextlib import suppress

from parkway.text.prose import Markers, prose
from parkway.text.reader import Ended, Reader, Steps

THINK = ("<think>", "</think>")

Thoughts = tuple[tuple[str, str], ...]


def thought(reader: Reader, thoughts: Thoughts, *, thinking: bool) -> Steps[None]:
    """Tells the thought that the answer begins with, if it does: without an opening marker where it is `thinking`
    already. Whitespace around the markers isn't told. A thought that isn't closed lasts to the end."""
    if not thoughts:
        return
    opened = yield from _opened(reader, [opening for opening, _ in thoughts])
    if opened or thinking:
        closings = [closing for opening, closing in thoughts if opened in ("", opening)]
        yield from prose(reader, "reasoning", Markers(*closings))
        yield from _skip_space(reader)


def _opened(reader: Reader, openings: list[str]) -> Steps[str]:
    opened = ""
    with suppress(Ended):
        yield from reader.next()
        opened = yield from reader.one_of(*openings)
    if not opened:
        reader.at = 0
        return ""
    yield from _skip_space(reader)
    return opened


def _skip_space(reader: Reader) -> Steps[None]:
    with suppress(Ended):
        yield from reader.next()
    reader.settle()


def within_thought(prompt: str, thoughts: Thoughts) -> bool:
    """Whether a prompt ends with the opening of a thought."""
    return prompt.rstrip().endswith(tuple(opening for opening, _ in thoughts))
