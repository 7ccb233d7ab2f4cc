"""What one chat template needs of messages with calls that others don't, found out by trying it. Knows no dialect."""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parkway.errors import BadRequest
from parkway.text.chat_template import ChatTemplate

Message = Mapping[str, Any]

_NAME, _VALUE = "tried_name", "tried_value"
_LONG_ID = "call_0123456789abcdef"
_SHORT = re.compile(r"[a-zA-Z0-9]{9}")


@dataclass(frozen=True, slots=True)
class Needs:
    """`text_arguments`: as JSON text, not as an object. `null_content`: none where calls are all there is.
    `short_ids`: of nine letters and digits."""

    text_arguments: bool = False
    null_content: bool = False
    short_ids: bool = False

    @classmethod
    def of(cls, template: ChatTemplate) -> "Needs":
        """The fewest with which the template tells of a call; none if nothing helps."""
        every = (cls(*each) for each in itertools.product((False, True), repeat=3))
        return next((needs for needs in sorted(every, key=_count) if _tells(template, needs)), cls())

    def met(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages as the template needs them; arguments have to be objects."""
        return [self._met(message) for message in messages] if self != Needs() else messages

    def _met(self, message: Message) -> Message:
        changed: dict[str, Any] = {}
        if calls := message.get("tool_calls"):
            changed["tool_calls"] = [self._call(call) for call in calls]
            if self.null_content and not message.get("content"):
                changed["content"] = None
        if self.short_ids and isinstance(message.get("tool_call_id"), str):
            changed["tool_call_id"] = _short(message["tool_call_id"])
        return {**message, **changed}

    def _call(self, call: Message) -> Message:
        function = call["function"]
        if self.text_arguments and isinstance(function["arguments"], dict):
            function = {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}
        ids = {"id": _short(call["id"])} if self.short_ids and isinstance(call.get("id"), str) else {}
        return {**call, **ids, "function": function}


def _count(needs: Needs) -> int:
    return needs.text_arguments + needs.null_content + needs.short_ids


def _tells(template: ChatTemplate, needs: Needs) -> bool:
    function = {"name": _NAME, "arguments": {"a": _VALUE}}
    messages: list[Message] = [
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": _LONG_ID, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": _LONG_ID, "name": _NAME, "content": "b"},
    ]
    try:
        text = template.render(needs.met(messages))
    except BadRequest:
        return False
    return _NAME in text and _VALUE in text


def _short(call_id: str) -> str:
    """The same for the same id."""
    return call_id if _SHORT.fullmatch(call_id) else hashlib.sha256(call_id.encode()).hexdigest()[:9]
