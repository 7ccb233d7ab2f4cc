"""The tools of a request for a response, and which of them may or must be called. Knows no template and no grammar."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PlainValidator

from parkway.api.bodies import Body, Text
from parkway.api.tool_choice import Allowed, chosen
from parkway.errors import BadRequest
from parkway.text.parts import Tool

_NO_PARAMETERS = {"type": "object", "properties": {}}
_SHAPE = (
    'must be "none", "auto", "required", {"type": "function", "name": …}, '
    'or {"type": "allowed_tools", "mode": …, "tools": […]}'
)


def _a_function(tool: Any) -> Any:
    """Raises ValueError for a tool that OpenAI's servers run, or whose input has no schema."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind != "function":
        raise ValueError(f"tools of type {kind[:40]!r} are not supported, only functions")
    return tool


class ResponseTool(Body):
    type: Literal["function"]
    name: Annotated[Text, Field(min_length=1, max_length=256)]
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def tool(self) -> Tool:
        return Tool(self.name, self.description or "", self.parameters or _NO_PARAMETERS, bool(self.strict))


FunctionTool = Annotated[ResponseTool, BeforeValidator(_a_function)]


class Asked(NamedTuple):
    """A choice, and as it was spelt."""

    allowed: Allowed
    told: Any


def _asked(value: Any) -> Asked:
    return Asked(_allowed(value), value)


def _allowed(value: Any) -> Allowed:
    if value in ("none", "auto", "required"):
        return Allowed(value)
    try:
        if value["type"] == "function":
            return Allowed("one", (_name(value),))
        if value["type"] == "allowed_tools" and value["mode"] in ("auto", "required"):
            return Allowed(value["mode"], tuple(_name(each) for each in value["tools"]))
    except (KeyError, TypeError):
        pass
    raise ValueError(_SHAPE)


def _name(tool: Any) -> str:
    name = tool["name"]
    if tool["type"] == "function" and isinstance(name, str):
        return name
    raise KeyError(name)


ToolChoice = Annotated[Asked, PlainValidator(_asked, json_schema_input_type=str | dict[str, Any])]


def tools_within(asked: Sequence[ResponseTool], choice: Asked | None) -> tuple[tuple[Tool, ...], str]:
    """The tools that may be called, and which must be, in the words of ChatAsk. Raises BadRequest."""
    names = [tool.name for tool in asked]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise BadRequest(f"tools.{index}.name", f"tools.{index}.name: {name!r} is there twice")
    return chosen([tool.tool() for tool in asked], choice.allowed if choice else None)
