"""The input of a response, which is a text or items, and how chat templates want it. Knows no field beside it.

Items that an answer is made of, thoughts, texts and calls in a row, are one message of the assistant.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from parkway.api.bodies import Body, Text, unicode_text
from parkway.api.chat_messages import Arguments

_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output"})


def _text_part(part: Any) -> Any:
    """A part that has text; a refusal, which an answer may have been, is one."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "refusal":
        return {"type": "output_text", "text": part.get("refusal")}
    if isinstance(kind, str) and kind not in _TEXTS:
        raise ValueError(f"parts of type {kind[:40]!r} are not supported, only text")
    return part


class TextPart(Body):
    type: Text
    text: Text


def _parts(value: Any) -> Any:
    """A text as the part that it stands for."""
    return [{"type": "input_text", "text": unicode_text(value)}] if isinstance(value, str) else value


OnlyText = Annotated[TextPart, BeforeValidator(_text_part)]
Texts = Annotated[list[OnlyText], BeforeValidator(_parts)]


class MessageItem(Body):
    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    content: Texts


class ReasoningItem(Body):
    """`encrypted_content`, which others may have sent, can't be read and is left out."""

    type: Literal["reasoning"]
    summary: Texts | None = None
    content: Texts | None = None


class CallItem(Body):
    type: Literal["function_call"]
    call_id: Text
    name: Text
    arguments: Arguments


class CallOutputItem(Body):
    type: Literal["function_call_output"]
    call_id: Text
    output: Texts


def _known_item(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    kind = item.get("type") or ("message" if "role" in item else "item_reference")
    if kind == "item_reference":
        raise ValueError("items can't be referred to: this server keeps none; send the item itself")
    if isinstance(kind, str) and kind not in _ITEMS:
        raise ValueError(f"items of type {kind[:40]!r} are not supported")
    return item | {"type": kind}


def _items(value: Any) -> Any:
    """A text as the user's message that it stands for."""
    return [{"type": "message", "role": "user", "content": value}] if isinstance(value, str) else value


Item = Annotated[MessageItem | ReasoningItem | CallItem | CallOutputItem, Field(discriminator="type")]
KnownItem = Annotated[Item, BeforeValidator(_known_item)]
Items = Annotated[list[KnownItem], Field(min_length=1), BeforeValidator(_items)]


def template_messages(instructions: str | None, items: Sequence[Item]) -> list[dict[str, Any]]:
    """The chat for a template. What comes before all else from the system, instructions first, is one message, since
    many templates take no second."""
    names = {item.call_id: item.name for item in items if isinstance(item, CallItem)}
    chat = [{"role": "system", "content": instructions}] if instructions else []
    for is_answer, run in groupby(items, _is_answer):
        turn = [*run]
        chat += [_answer(turn)] if is_answer else _told(turn, names)
    return _with_one_system(chat)


def _is_answer(item: Item) -> bool:
    return isinstance(item, ReasoningItem | CallItem) or (isinstance(item, MessageItem) and item.role == "assistant")


def _told(turn: Sequence[Item], names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Messages of others than the assistant."""
    for item in turn:
        if isinstance(item, CallOutputItem):
            name = {"name": names[item.call_id]} if item.call_id in names else {}
            yield {"role": "tool", "tool_call_id": item.call_id, "content": _text(item.output), **name}
        elif isinstance(item, MessageItem):
            # "developer" is OpenAI's newer name; chat templates were written for "system".
            role = "system" if item.role == "developer" else item.role
            yield {"role": role, "content": _text(item.content)}


def _answer(turn: Sequence[Item]) -> dict[str, Any]:
    thoughts = [_text(item.content or item.summary or ()) for item in turn if isinstance(item, ReasoningItem)]
    told: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(_text(item.content) for item in turn if isinstance(item, MessageItem)),
    }
    if any(thoughts):
        told["reasoning_content"] = "\n".join(filter(None, thoughts))
    if calls := [_call(item) for item in turn if isinstance(item, CallItem)]:
        told["tool_calls"] = calls
    return told


def _call(item: CallItem) -> dict[str, Any]:
    return {"id": item.call_id, "type": "function", "function": {"name": item.name, "arguments": item.arguments}}


def _with_one_system(chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
    count = next((at for at, message in enumerate(chat) if message["role"] != "system"), len(chat))
    first = "\n\n".join(message["content"] for message in chat[:count])
    return [{"role": "system", "content": first}, *chat[count:]] if count else chat


def _text(parts: Sequence[TextPart]) -> str:
    return "".join(part.text for part in parts)
