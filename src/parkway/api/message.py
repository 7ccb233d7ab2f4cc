"""The parts of an answer put together again: what was said, what was thought, what was called. Knows no JSON."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from parkway.text.parts import Part


@dataclass(slots=True)
class Call:
    """`arguments`: a JSON object as the model wrote it; perhaps cut, where the answer was."""

    name: str
    arguments: str = ""


@dataclass(slots=True)
class Message:
    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)


def message_of(parts: Iterable[Part]) -> Message:
    message = Message()
    texts: dict[str, list[str]] = {"content": [], "reasoning": []}
    for kind, text, call in parts:
        if kind == "call":
            message.calls.append(Call(text))
        elif kind == "arguments":
            message.calls[call].arguments += text
        else:
            texts[kind].append(text)
    message.content, message.reasoning = "".join(texts["content"]), "".join(texts["reasoning"])
    return message
