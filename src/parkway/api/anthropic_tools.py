"""The tools of an Anthropic chat, and which of them must be called. Knows no template and no grammar."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from parkway.api.bodies import Body, Text
from parkway.errors import BadRequest
from parkway.text.parts import Tool


def _a_clients(tool: Any) -> Any:
    """Raises ValueError for a tool that only Anthropic's models know, or that their servers run."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind != "custom":
        raise ValueError(f"tools of type {kind[:40]!r} are not supported, only those with an input_schema of their own")
    return tool


class AnthropicTool(Body):
    name: Annotated[Text, Field(min_length=1, max_length=256)]
    description: Text | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


CustomTool = Annotated[AnthropicTool, BeforeValidator(_a_clients)]


class ToolChoice(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: Text | None = None
    disable_parallel_tool_use: bool | None = None

    def within(self, tools: Sequence[Tool]) -> str:
        """In the words of ChatAsk. Raises BadRequest if there is no such tool."""
        if self.type in ("auto", "none"):
            return self.type
        if not tools:
            raise BadRequest("tool_choice", "tool_choice: asks for a call, but there are no tools")
        if self.type == "any":
            return "required"
        if self.name not in [tool.name for tool in tools]:
            raise BadRequest("tool_choice.name", f"tool_choice.name: {self.name!r} is none of the tools")
        return f"tool:{self.name}"


def tools_of(asked: Sequence[AnthropicTool]) -> tuple[Tool, ...]:
    """Raises BadRequest for a name that is there twice."""
    names = [tool.name for tool in asked]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise BadRequest(f"tools.{index}.name", f"tools.{index}.name: {name!r} is there twice")
    return tuple(Tool(tool.name, tool.description or "", tool.input_schema, bool(tool.strict)) for tool in asked)
