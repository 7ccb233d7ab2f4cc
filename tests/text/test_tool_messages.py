"""What clients send becomes what templates want."""

import json
from typing import Any

from parkway.text.dialects import dialect_named
from parkway.text.tool_messages import for_template, knows_tools, spelled_out

from .answers import TOOLS, WEATHER


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "x", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def assistant(arguments: Any, content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": [call(arguments)]}


def test_arguments_become_objects() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        assistant('{"city": "Paris"}'),
        assistant({"city": "Rome"}),
        assistant(""),
    ]
    told = for_template(messages)
    given = [each["tool_calls"][0]["function"]["arguments"] for each in told[1:]]
    assert given == [{"city": "Paris"}, {"city": "Rome"}, {}]
    assert told[0] == messages[0]
    assert messages[1] == assistant('{"city": "Paris"}')


def test_arguments_that_are_no_object_stay() -> None:
    for arguments in ("{", "[1]", "3", "[" * 100_000):
        assert for_template([assistant(arguments)]) == [assistant(arguments)]


def test_a_template_that_knows_no_tools_is_told_in_text() -> None:
    messages = [
        {"role": "user", "content": "Weather?"},
        assistant('{"city": "Paris"}', "Let me see."),
        {"role": "tool", "tool_call_id": "x", "content": "12 degrees"},
        {"role": "tool", "tool_call_id": "y", "content": [{"type": "text", "text": "rain"}]},
    ]
    system, user, answer, result = spelled_out(messages, TOOLS, dialect_named("smollm"))
    assert json.dumps(WEATHER.parameters) in system["content"]
    assert '<tool_call>[{"name": "function name", "arguments": {arguments}}]</tool_call>' in system["content"]
    assert user == messages[0]
    expected = 'Let me see.\n<tool_call>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_call>'
    assert answer == {"role": "assistant", "content": expected}
    assert result["role"] == "user"
    assert result["content"].split("\n")[1::3] == ["12 degrees", "rain"]


def test_the_clients_system_message_comes_first() -> None:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    system, _ = spelled_out(messages, TOOLS, dialect_named("generic"))
    assert system["content"].startswith("Be kind.\n\nYou can call")
    assert spelled_out(messages, (), dialect_named("generic")) == messages


def test_whether_a_template_knows_tools() -> None:
    assert knows_tools("{% if tools %}")
    assert not knows_tools("{{ messages }}")
