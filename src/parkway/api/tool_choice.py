"""Which of a chat's tools may or must be called, in OpenAI's words. Knows no template and no grammar."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import PlainValidator

from parkway.errors import BadRequest
from parkway.text.parts import Tool

_SHAPE = (
    'must be "none", "auto", "required", {"type": "function", "function": {"name": …}}, '
    'or {"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}'
)


class Allowed(NamedTuple):
    """`mode`: none, auto, required, or one. `names`: of those that may be called, for one the only; None for all."""

    mode: str
    names: tuple[str, ...] | None = None


def _choice(value: Any) -> Allowed:
    if value in ("none", "auto", "required"):
        return Allowed(value)
    try:
        if value["type"] == "function":
            return Allowed("one", (_name(value),))
        allowed = value["allowed_tools"]
        if value["type"] == "allowed_tools" and allowed["mode"] in ("auto", "required"):
            return Allowed(allowed["mode"], tuple(_name(each) for each in allowed["tools"]))
    except (KeyError, TypeError):
        pass
    raise ValueError(_SHAPE)


def _name(tool: Any) -> str:
    name = tool["function"]["name"]
    if tool["type"] == "function" and isinstance(name, str):
        return name
    raise KeyError(name)


ToolChoice = Annotated[Allowed, PlainValidator(_choice, json_schema_input_type=str | dict[str, Any])]


def chosen(tools: Sequence[Tool], choice: Allowed | None) -> tuple[tuple[Tool, ...], str]:
    """The tools that may be called, and which must be, in the words of ChatAsk. Raises BadRequest."""
    names = [tool.name for tool in tools]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise BadRequest(f"tools.{index}.function.name", f"tools.{index}.function.name: {name!r} is there twice")
    if choice is None:
        return tuple(tools), "auto"
    for name in choice.names or ():
        if name not in names:
            raise BadRequest("tool_choice", f"tool_choice names {name!r}, which is none of the tools")
    if choice.mode == "one" and choice.names is not None:
        return tuple(tools), f"tool:{choice.names[0]}"
    kept = tuple(tool for tool in tools if choice.names is None or tool.name in choice.names)
    if choice.mode == "required" and not kept:
        raise BadRequest("tool_choice", "tool_choice asks for a call, but there are no tools")
    return kept, choice.mode
