"""Chats with models that think: thoughts told apart, left in place, left out, and the form that comes after one."""

import json
from typing import Any

import pytest

from tests.api.conftest import Connect
from tests.api.fake import FakeDoor, byte_text
from tests.api.speaking import TEMPLATE, gathered, whole
from tests.api.test_tools import FORMAT, HI, URL, asked, keeps, prompt


async def test_thoughts_and_their_tokens(within: Connect) -> None:
    _, body = await asked(within, "<think>Hm.</think>Yes.", tools=[])
    message = body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 4}  # three, and the mark that ends it
    _, body = await asked(within, "Yes.", tools=[])
    assert "reasoning_content" not in body["choices"][0]["message"]
    assert "completion_tokens_details" not in body["usage"]


async def test_a_thought_that_the_prompt_began(within: Connect) -> None:
    for fields in ({"enable_thinking": True}, {"chat_template_kwargs": {"enable_thinking": True}}):
        door, body = await asked(within, "Hm.</think>Yes.", tools=[], **fields)
        assert prompt(door) == "<user>Hi<assistant><think>"
        message = body["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")


async def test_a_form_holds_after_the_thought(within: Connect) -> None:
    door, _ = await asked(within, "x", tools=[], enable_thinking=True, response_format=FORMAT)
    grammar = json.loads(door.asked[0].sampling.grammar or "")
    assert "thought" in grammar["grammars"][0]["lark_grammar"]
    assert grammar["grammars"][1]["name"] == "content"


@pytest.mark.parametrize("begun", [False, True])
async def test_what_comes_after_the_thought_is_of_the_form(within: Connect, begun: bool) -> None:
    body = {"messages": HI, "enable_thinking": begun, "response_format": FORMAT}
    async with within(door := FakeDoor("x"), byte_text(TEMPLATE)) as http:  # where the marks are plain text
        assert (await http.post(URL, json=body)).status_code == 200
    thought = "Hm, {" if begun else "<think>Hm, {"
    assert keeps(door, thought + '</think>\n\n{"a": 1}')
    assert not keeps(door, thought + '</think>{"b": 1}')
    assert not keeps(door, thought + "</think>Yes.")
    assert keeps(door, '{"a": 1}') != begun
    assert not keeps(door, "Hm")


async def test_thoughts_that_stay_in_the_content_are_of_the_form(within: Connect) -> None:
    body = {"messages": HI, "reasoning_format": "none", "response_format": FORMAT}
    async with within(door := FakeDoor("x"), byte_text(TEMPLATE)) as http:
        assert (await http.post(URL, json=body)).status_code == 200
    assert keeps(door, '{"a": 1}')
    assert not keeps(door, '<think>Hm</think>{"a": 1}')


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_may_stay_or_be_left_out(within: Connect, stream: bool) -> None:
    answer = "<think>Hm.</think>Yes."

    async def message(**fields: Any) -> dict[str, Any]:
        _, told = await asked(within, answer, stream=stream, **fields)
        [choice] = gathered(told) if stream else whole(told)
        told_message: dict[str, Any] = choice["message"]
        return told_message

    assert await message(tools=[], reasoning_format="none") == {"content": answer}
    assert await message(tools=[], reasoning_format="deepseek") == {"content": "Yes.", "reasoning_content": "Hm."}
    assert await message(tools=[], include_reasoning=False) == {"content": "Yes."}
    assert await message(reasoning_format="none") == {"content": "Hm.Yes."}
