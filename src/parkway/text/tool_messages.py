"""Messages with tools in them, as chat templates want them. Knows no template's text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from parkway.text.parts import Dialect, Tool

Messages = Sequence[Mapping[str, Any]]


def for_template(messages: Messages) -> list[dict[str, Any]]:
    """The messages with the arguments of calls as objects, which clients send as JSON in a string and templates expect.
    Arguments that aren't a JSON object stay as they are."""
    return [
        {**message, "tool_calls": [_with_object(call) for call in calls]}
        if isinstance(calls := message.get("tool_calls"), list)
        else dict(message)
        for message in messages
    ]


def knows_tools(template_source: str) -> bool:
    """Whether a chat template tells the model of tools."""
    return "tools" in template_source


def spelled_out(messages: Messages, tools: Sequence[Tool], dialect: Dialect) -> list[dict[str, Any]]:
    """The messages for a template that doesn't know tools: the system message tells of them, calls and their results
    are text."""
    told: list[dict[str, Any]] = []
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result and after_result:  # templates want turns to alternate
            told[-1]["content"] += "\n" + _result(message)
        else:
            told.append({"role": "user", "content": _result(message)} if is_result else _plain(message, dialect))
        after_result = is_result
    return _with_system(told, _instructions(tools, dialect)) if tools else told


def _with_object(call: Any) -> Any:
    """A call as a client sent it, or as it was already."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}} if isinstance(arguments, dict) else call


def _plain(message: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The message, its calls written into its content."""
    plain = {key: value for key, value in message.items() if key != "tool_calls"}
    pieces = [_text(message.get("content"))] if message.get("tool_calls") else []
    for call in message.get("tool_calls") or ():
        arguments = call["function"].get("arguments", {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        pieces.append(dialect.written_call(call["function"]["name"], text))
    return plain | {"content": "\n".join(filter(None, pieces))} if pieces else plain


def _result(message: Mapping[str, Any]) -> str:
    return f"<tool_response>\n{_text(message.get('content'))}\n</tool_response>"


def _text(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content or ""


def _instructions(tools: Sequence[Tool], dialect: Dialect) -> str:
    described = ({"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools)
    lines = [json.dumps(each, ensure_ascii=False) for each in described]
    form = dialect.written_call("function name", "{arguments}")
    return "\n".join(
        ["You can call these functions:", *lines, "", "To call one, answer in this form and with nothing else:", form]
    )


def _with_system(messages: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    if messages and messages[0]["role"] == "system":
        own = _text(messages[0].get("content"))
        return [{**messages[0], "content": f"{own}\n\n{text}" if own else text}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
