"""The messages and tools of an OpenAI chat, and how chat templates want them. Knows no field beside them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainValidator

from parkway.api.bodies import Body, Text, unicode_text
from parkway.text.parts import Tool


def _text_kind(value: str) -> str:
    if value == "text":
        return value
    raise ValueError(f"is {value[:40]!r}, but only text can be read")


def _parts(value: Any) -> Any:
    """A text as a list of one part; a refusal, which an answer may have been, as text."""
    if isinstance(value, str):
        return [{"type": "text", "text": unicode_text(value)}]
    if not isinstance(value, list):
        return value
    refusal = {"type": "refusal"}
    return [
        {"type": "text", "text": part.get("refusal")} if isinstance(part, dict) and refusal.items() <= part.items()
        else part
        for part in value
    ]  # fmt: skip


class TextPart(Body):
    type: Annotated[str, AfterValidator(_text_kind)]
    text: Text


def _arguments(value: Any) -> str | dict[str, Any]:
    if isinstance(value, str):
        return unicode_text(value)
    if isinstance(value, dict):
        return value
    raise ValueError("must be a JSON object, or its text")


Arguments = Annotated[str | dict[str, Any], PlainValidator(_arguments, json_schema_input_type=str | dict[str, Any])]


class CalledFunction(Body):
    name: Text
    arguments: Arguments = Field(default_factory=dict)


class ToolCall(Body):
    model_config = ConfigDict(extra="allow")

    id: Text | None = None
    type: Literal["function"] = "function"
    function: CalledFunction

    def for_template(self) -> dict[str, Any]:
        called = {"name": self.function.name, "arguments": self.function.arguments}
        return {"type": self.type, "function": called} | ({"id": self.id} if self.id is not None else {})


class ChatMessage(Body):
    """One message; fields that only some templates know go to the template as they came."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[TextPart] | None, BeforeValidator(_parts)] = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: Text | None = None
    name: Text | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None

    def for_template(self) -> dict[str, Any]:
        # "developer" is OpenAI's newer name; chat templates were written for "system".
        role = "system" if self.role == "developer" else self.role
        text = "".join(part.text for part in self.content or ())
        calls = [call.for_template() for call in self.tool_calls or ()]
        told = {
            "tool_calls": calls or None,
            "tool_call_id": self.tool_call_id,
            "name": self.name,
            "reasoning_content": self.reasoning if self.reasoning_content is None else self.reasoning_content,
        }
        kept = {name: value for name, value in told.items() if value is not None}
        return {**(self.model_extra or {}), **kept, "role": role, "content": text}


class Function(Body):
    name: Annotated[Text, Field(min_length=1, max_length=256)]
    description: Text | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Body):
    type: Literal["function"]
    function: Function

    def tool(self) -> Tool:
        function = self.function
        parameters = function.parameters or _NO_PARAMETERS
        return Tool(function.name, function.description or "", parameters, bool(function.strict))


_NO_PARAMETERS = {"type": "object", "properties": {}}
