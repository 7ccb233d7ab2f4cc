"""Chats with tools and thoughts: what the model is told, how calls and thoughts are streamed, what must be called."""

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from openai import AsyncOpenAI

from tests.api.conftest import Connect
from tests.api.fake import FakeDoor, byte_text
from tests.api.speaking import TIME, WEATHER, call, chunks, gathered, ids, speaking, whole

URL = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
IN_PARIS, IN_ROME = '{"city": "Paris"}', '{"city": "Rome"}'
PARIS, ROME = call("weather", city="Paris"), call("weather", city="Rome")


async def asked(within: Connect, answer: str, **fields: Any) -> tuple[FakeDoor, Any]:
    body = {"messages": HI, "tools": [WEATHER, TIME], "seed": 1} | fields
    async with within(door := FakeDoor(ids(answer)), speaking()) as http:
        response = await http.post(URL, json=body)
    assert response.status_code == 200, response.text
    return door, response.text if fields.get("stream") else response.json()


def prompt(door: FakeDoor) -> str:
    return speaking().tokenizer.decode(door.asked[0].prompt)


def arguments(message: dict[str, Any]) -> list[str]:
    return [each["function"]["arguments"] for each in message["tool_calls"]]


async def test_a_call(within: Connect) -> None:
    door, body = await asked(within, "Let me see.\n" + PARIS)
    assert prompt(door) == "[weather time ]<user>Hi<assistant>"
    [choice] = body["choices"]
    message = choice["message"]
    [made] = message.pop("tool_calls")
    assert made.pop("id").startswith("call_")
    assert made == {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    assert message == {"role": "assistant", "content": "Let me see.", "refusal": None}
    assert choice["finish_reason"] == "tool_calls"


async def test_content_is_null_beside_calls(within: Connect) -> None:
    _, body = await asked(within, PARIS + "\n" + ROME)
    message = body["choices"][0]["message"]
    assert message["content"] is None
    assert [each["function"]["arguments"] for each in message["tool_calls"]] == [
        '{"city": "Paris"}',
        '{"city": "Rome"}',
    ]


async def test_a_call_is_streamed_as_openai_streams_it(within: Connect) -> None:
    _, text = await asked(within, "Ok. " + PARIS, stream=True)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(text)]
    assert deltas[0] == {"role": "assistant", "content": ""}
    calls = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    [first], *rest = calls
    call_id = first.pop("id")
    assert call_id.startswith("call_")
    assert first == {"index": 0, "type": "function", "function": {"name": "weather", "arguments": ""}}
    assert all(set(each) == {"index", "function"} and set(each["function"]) == {"arguments"} for [each] in rest)
    assert "".join(each["function"]["arguments"] for [each] in rest) == '{"city": "Paris"}'
    assert len(rest) > 3, "the arguments must not come in one piece"
    last = chunks(text)[-1]["choices"][0]
    assert (last["delta"], last["finish_reason"]) == ({}, "tool_calls")


ANSWERS = ["Plain.", PARIS, f"One {PARIS}\n{ROME} two", "Hm.</think>", "<think>Hm.</think>Yes."]
ANSWERS += [f"<think>a\nb</think>{PARIS}"]


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        "Plain.",
        PARIS,
        f"One {PARIS}\n{ROME} two",
        "<think>Hm.</think>Yes.",
        f"<think>a\nb</think>{PARIS}",
        "Hm.</think>",
    ],
)
@pytest.mark.parametrize("fields", [{}, {"n": 3}, {"logprobs": True, "top_logprobs": 1}, {"max_tokens": 30}])
async def test_a_stream_is_the_whole_body(within: Connect, answer: str, thinking: bool, fields: dict[str, Any]) -> None:
    fields = fields | {"enable_thinking": thinking}
    _, body = await asked(within, answer, **fields)
    _, text = await asked(within, answer, stream=True, **fields)
    assert gathered(text) == whole(body)


async def test_openais_client_reads_calls(live: Connect) -> None:
    door = FakeDoor(ids(f"<think>Where?</think>{PARIS}\n{ROME}"))
    async with (
        live(door, speaking()) as http,
        AsyncOpenAI(api_key="none", base_url=f"{http.base_url}/v1", max_retries=0) as client,
    ):
        ask: dict[str, Any] = {"model": "toy", "messages": HI, "tools": [WEATHER]}
        answer = await client.chat.completions.create(**ask)
        async with client.chat.completions.stream(**ask) as stream:
            async for _ in stream:
                pass
            streamed = await stream.get_final_completion()
    for message in (answer.choices[0].message, streamed.choices[0].message):
        assert message.model_extra == {"reasoning_content": "Where?"}
        calls: Any = message.tool_calls
        assert [each.function.arguments for each in calls] == [IN_PARIS, IN_ROME]
        assert len({each.id for each in calls}) == 2


async def test_the_conversation_goes_on(within: Connect) -> None:
    messages = [
        *HI,
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Where?",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "rain"}]},
    ]
    door, body = await asked(within, "Rain.", messages=messages)
    assert prompt(door).endswith("<user>Hi<assistant>(Where?)<tool_call>weather Paris<tool>rain#call_1<assistant>")
    assert body["choices"][0]["finish_reason"] == "stop"


async def test_without_parallel_calls_the_answer_ends_before_the_second(within: Connect) -> None:
    for stream in (False, True):
        door, told = await asked(within, f"{PARIS}\n{ROME}\n{PARIS}", parallel_tool_calls=False, stream=stream)
        [choice] = gathered(told) if stream else whole(told)
        assert arguments(choice["message"]) == [IN_PARIS]
        assert choice["finish_reason"] == "tool_calls"
        assert door.cancelled == [0]


async def test_choice_none_goes_without(within: Connect) -> None:
    door, body = await asked(within, PARIS, tool_choice="none")
    assert prompt(door) == "<user>Hi<assistant>"
    assert body["choices"][0]["message"]["content"] == PARIS
    assert body["choices"][0]["finish_reason"] == "stop"


def keeps(door: FakeDoor, text: str) -> bool:
    """Whether the grammar that the engine was given allows an answer."""
    grammar = door.asked[0].sampling.grammar
    assert grammar is not None
    assert json.loads(grammar)["grammars"], "the engine reads the serialised form"
    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0)
    return bool(matcher.consume_tokens(list(text.encode()))) and bool(matcher.is_accepting())


NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.mark.parametrize(
    ("choice", "allowed", "forbidden"),
    [
        ("required", [PARIS, call("time"), f"{PARIS}\n{ROME}"], ["Hello", call("other"), call("weather", city=5)]),
        (NAMED, [PARIS], ["Hello", call("time"), f"{PARIS}\n{ROME}"]),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}},
            [PARIS, f"{PARIS}\n{ROME}"],
            [call("time")],
        ),
    ],
)
async def test_a_call_that_must_be(within: Connect, choice: Any, allowed: list[str], forbidden: list[str]) -> None:
    door, _ = await asked(within, PARIS, tool_choice=choice)
    assert door.taught is not None
    assert all(keeps(door, text) for text in allowed)
    assert not any(keeps(door, text) for text in forbidden)


async def test_required_without_parallel_calls_is_one(within: Connect) -> None:
    door, _ = await asked(within, PARIS, tool_choice="required", parallel_tool_calls=False)
    assert keeps(door, PARIS)
    assert not keeps(door, f"{PARIS}\n{ROME}")


async def test_auto_has_no_grammar(within: Connect) -> None:
    for choice in ("auto", None, {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}):
        door, _ = await asked(within, "Hi", tool_choice=choice)
        assert door.asked[0].sampling.grammar is None


async def test_a_strict_tool_is_called_by_its_schema_where_calls_are_free(within: Connect) -> None:
    function: Any = WEATHER["function"]
    strict = {"type": "function", "function": {**function, "strict": True}}
    door, body = await asked(within, f"Let me see. {PARIS}", tools=[strict, TIME])
    assert door.taught is not None
    assert arguments(body["choices"][0]["message"]) == [IN_PARIS]
    assert all(keeps(door, text) for text in ("", "Hello", f"Hm. {PARIS}", f"{PARIS}\n{ROME}", f"{call('time')} Now?"))
    assert not any(keeps(door, text) for text in (call("weather", city=5), f"Hm. {call('other')}"))
    door, _ = await asked(within, PARIS, tools=[strict], tool_choice="none")
    assert door.asked[0].sampling.grammar is None


FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "required": ["a"]}}}


async def test_a_form_beside_tools_leaves_both(within: Connect) -> None:
    door, _ = await asked(within, PARIS, response_format=FORMAT)
    assert keeps(door, '{"a": 1}')
    assert keeps(door, PARIS)
    assert not keeps(door, "Hello")
    assert not keeps(door, '{"b": 1}')


async def test_a_form_beside_tools_is_refused_where_calls_look_like_it(within: Connect) -> None:
    body = {"messages": HI, "tools": [TIME], "response_format": FORMAT}
    async with within(door := FakeDoor("x")) as http:
        refused = await http.post(URL, json=body)
        assert (await http.post(URL, json=body | {"tool_choice": "none"})).status_code == 200
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")
    assert keeps(door, '{"a": 1}')


async def test_a_template_that_knows_no_tools_is_told_in_the_system_message(within: Connect) -> None:
    text = byte_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
    async with within(door := FakeDoor('{"name": "time", "arguments": {}}'), text) as http:
        body = (await http.post(URL, json={"messages": HI, "tools": [TIME]})).json()
    assert bytes(door.asked[0].prompt).startswith(b"<system>")
    assert b'"name": "time"' in bytes(door.asked[0].prompt)
    assert body["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "time"


async def test_a_template_gets_the_arguments_as_it_wants_them(within: Connect) -> None:
    template = (
        "{% for m in messages %}{% if m.tool_calls and m.content is none %}"
        "{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments }}{% endfor %}"
        "{% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}{# tools #}"
    )
    made = {"id": "call_1", "type": "function", "function": {"name": "time", "arguments": '{"a": 1}'}}
    messages = [*HI, {"role": "assistant", "content": None, "tool_calls": [made]}]
    async with within(door := FakeDoor("x"), byte_text(template)) as http:
        response = await http.post(URL, json={"messages": messages, "tools": [TIME]})
    assert response.status_code == 200, response.text
    assert bytes(door.asked[0].prompt) == b'<user>Hitime{"a": 1}'
