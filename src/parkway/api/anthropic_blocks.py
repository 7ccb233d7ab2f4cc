"""The messages of an Anthropic chat, and how chat templates want them. Knows no field beside them.

What a text is in several blocks of a user's message or of the system's is in as many lines; an answer's blocks follow
each other as the model wrote them. Messages of one role in a row are one message, as there.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from parkway.api.bodies import Body, Text, unicode_text

_BILLING = "x-anthropic-billing-header:"
"""What a system block begins with that is for whoever counts, not for the model. It differs from request to request, so
a prompt with it would share no beginning with the one before."""


class TextBlock(Body):
    type: Literal["text"]
    text: Text


class ThinkingBlock(Body):
    type: Literal["thinking"]
    thinking: Text


class RedactedThinkingBlock(Body):
    type: Literal["redacted_thinking"]


class ToolUseBlock(Body):
    type: Literal["tool_use"]
    id: Text
    name: Text
    input: dict[str, Any]


def _of_known_type(types: frozenset[str]) -> BeforeValidator:
    def check(block: Any) -> Any:
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind not in types:
            raise ValueError(f"blocks of type {kind[:40]!r} are not supported here")
        return block

    return BeforeValidator(check)


def _blocks(value: Any) -> Any:
    """A text as the block that it stands for."""
    return [{"type": "text", "text": unicode_text(value)}] if isinstance(value, str) else value


OnlyText = Annotated[TextBlock, _of_known_type(frozenset({"text"}))]
Texts = Annotated[list[OnlyText], BeforeValidator(_blocks)]


class ToolResultBlock(Body):
    type: Literal["tool_result"]
    tool_use_id: Text
    content: Texts | None = None


_PLACES = {"tool_result": "user", "tool_use": "assistant", "thinking": "assistant", "redacted_thinking": "assistant"}
"""Who says what is not text."""

Block = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")
]
KnownBlock = Annotated[Block, _of_known_type(frozenset({"text", *_PLACES}))]


class AnthropicMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: Annotated[list[KnownBlock], BeforeValidator(_blocks)]


def _in_their_places(message: AnthropicMessage) -> AnthropicMessage:
    for index, block in enumerate(message.content):
        if _PLACES.get(block.type, message.role) != message.role:
            raise ValueError(f"content.{index}: {block.type} blocks are the {_PLACES[block.type]}'s")
    return message


Message = Annotated[AnthropicMessage, AfterValidator(_in_their_places)]


def template_messages(system: Sequence[TextBlock], messages: Sequence[AnthropicMessage]) -> list[dict[str, Any]]:
    """The chat for a template. An empty answer at the end is none."""
    turns = [(role, [*chain.from_iterable(each.content for each in same)]) for role, same in _runs(messages)]
    told = [block for block in system if not block.text.startswith(_BILLING)]
    if turns and turns[0][0] == "system":
        told += _texts(turns.pop(0)[1])
    names = {block.id: block.name for _, turn in turns for block in turn if isinstance(block, ToolUseBlock)}
    chat = [{"role": "system", "content": _lines(told)}] if told else []
    for role, turn in turns:
        if role == "user":
            chat += _users(turn, names)
        else:
            chat.append({"role": role, "content": _lines(_texts(turn))} if role == "system" else _assistants(turn))
    if chat and chat[-1] == {"role": "assistant", "content": ""}:
        chat.pop()
    return chat


def _runs(messages: Sequence[AnthropicMessage]) -> Iterator[tuple[str, Iterator[AnthropicMessage]]]:
    return groupby(messages, key=lambda message: message.role)


def _users(turn: Sequence[Block], names: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Results of tools are messages of their own."""
    for is_result, run in groupby(turn, key=lambda block: isinstance(block, ToolResultBlock)):
        blocks = [*run]
        if not is_result:
            yield {"role": "user", "content": _lines(_texts(blocks))}
        for block in blocks:
            if isinstance(block, ToolResultBlock):
                name = {"name": names[block.tool_use_id]} if block.tool_use_id in names else {}
                content = _lines(block.content or ())
                yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": content, **name}


def _assistants(turn: Sequence[Block]) -> dict[str, Any]:
    """A thought that can't be read is left out."""
    thoughts = "\n".join(block.thinking for block in turn if isinstance(block, ThinkingBlock))
    calls = [_call(block) for block in turn if isinstance(block, ToolUseBlock)]
    told: dict[str, Any] = {"role": "assistant", "content": "".join(block.text for block in _texts(turn))}
    return told | ({"reasoning_content": thoughts} if thoughts else {}) | ({"tool_calls": calls} if calls else {})


def _call(block: ToolUseBlock) -> dict[str, Any]:
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": block.input}}


def _texts(turn: Iterable[Block]) -> list[TextBlock]:
    return [block for block in turn if isinstance(block, TextBlock)]


def _lines(blocks: Iterable[TextBlock]) -> str:
    return "\n".join(block.text for block in blocks if block.text)
