"""OpenAI's own client on a socket, by the Responses API: what it makes of streams, parks, tools and errors."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import (
    ParsedResponse,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from pydantic import BaseModel

from parkway.api import pulse
from parkway.request import Preempt
from tests.api.anthropic_chats import CALL, THOUGHT, text
from tests.api.conftest import Connect
from tests.api.fake import N_CTX, FakeDoor
from tests.api.parked import paced, park, recomputed, resume, step, until
from tests.api.responses_chats import TOOL

ASKED: dict[str, Any] = {"model": "toy", "input": "Hi"}
TOOLS: Any = [TOOL]
Client = Callable[..., AbstractAsyncContextManager[AsyncOpenAI]]


@pytest.fixture
def client(live: Connect) -> Client:
    @asynccontextmanager
    async def connect(door: FakeDoor, **settings: Any) -> AsyncIterator[AsyncOpenAI]:
        async with (
            live(door, text(), **settings) as http,
            AsyncOpenAI(api_key="none", base_url=f"{http.base_url}/v1", max_retries=0) as sdk,
        ):
            yield sdk

    return connect


async def test_a_response(client: Client) -> None:
    async with client(FakeDoor("Grüße", cached=[3])) as sdk:
        response = await sdk.responses.create(**ASKED, instructions="S", extra_body={"seed": 5})
    assert (response.output_text, response.status, response.model) == ("Grüße", "completed", "toy")
    assert response.usage is not None
    assert response.usage.input_tokens == len("<system>S<user>Hi<assistant>")
    assert response.usage.input_tokens_details.cached_tokens == 3
    assert response.usage.output_tokens == len("Grüße".encode()) + 1
    assert response.model_extra is not None
    assert response.model_extra["parkway"] == {"seed": 5}
    assert response.model_extra["preempt"] == {"parks": 0, "recomputes": 0, "parked_ms": 0}
    assert type(response).model_validate(response.to_dict()) == response  # strictly, which the client is not


class ParkingDoor(FakeDoor):
    """Parks its chat before the steps that `when` names, from 0."""

    def __init__(self, answer: str, when: Callable[[int], bool]) -> None:
        super().__init__(answer, preempt=Preempt(1, 1, 40))
        self._steps = itertools.count()
        self._when = when

    def step(self, tokens: int = 1) -> None:
        if self._when(next(self._steps)):
            for act in (park(), resume(), recomputed()):
                act(self)
        super().step(tokens)


WHEN = pytest.mark.parametrize(
    "when", [lambda step: step == 0, lambda step: step == 30, lambda step: step % 4 == 3], ids=["first", "30", "fourth"]
)
ANSWER = f"{THOUGHT}I look.\n{CALL}"


@WHEN
@pytest.mark.parametrize("notices", ["comments", "chunks"])
async def test_a_parked_stream_is_read_as_any(client: Client, when: Callable[[int], bool], notices: str) -> None:
    alone, expected = await _read(client, FakeDoor(ANSWER))
    told, response = await _read(client, ParkingDoor(ANSWER, when), notices=notices)
    assert [kind for kind in told if kind != "response.in_progress"] == [
        kind for kind in alone if kind != "response.in_progress"
    ]
    assert (len(told) > len(alone)) == (notices == "chunks")
    assert response.model_extra is not None
    assert response.model_extra["preempt"] == {"parks": 1, "recomputes": 1, "parked_ms": 40}
    assert (response.output_text, response.status) == (expected.output_text, "completed")
    thought, said, called = response.output
    assert isinstance(thought, ResponseReasoningItem)
    assert thought.content is not None
    assert (thought.content[0].text, thought.summary) == ("hm, so", [])
    assert isinstance(said, ResponseOutputMessage)
    assert isinstance(called, ResponseFunctionToolCall)
    assert (called.name, called.arguments) == ("dir", '{"at": "/é"}')


async def _read(client: Client, door: FakeDoor, **extra: Any) -> tuple[list[str], ParsedResponse[None]]:
    """The types of all events of a stream and what the client makes of them."""
    async with client(door) as sdk, sdk.responses.stream(**ASKED, tools=TOOLS, extra_body=extra) as stream:
        return [event.type async for event in stream], await stream.get_final_response()


@WHEN
async def test_a_parked_stream_of_events(client: Client, when: Callable[[int], bool]) -> None:
    async with client(ParkingDoor(ANSWER, when)) as sdk:
        stream = await sdk.responses.create(**ASKED, tools=TOOLS, stream=True)
        told = [event async for event in stream]
    assert "".join(event.delta for event in told if event.type == "response.output_text.delta") == "I look."
    assert [event.sequence_number for event in told] == [*range(len(told))]
    for event in told:
        assert type(event).model_validate(event.to_dict()) == event
    last = told[-1]
    assert last.type == "response.completed"
    assert last.response.output[1].to_dict()["content"] == [
        {"type": "output_text", "annotations": [], "logprobs": [], "text": "I look."}
    ]


async def test_a_stream_waits_through_keepalives(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "KEEPALIVE_SECONDS", 0.001)
    async with client(door := paced()) as sdk, sdk.responses.stream(**ASKED) as stream:
        door.notify("preempted")
        reading = asyncio.create_task(stream.get_final_response())
        await asyncio.sleep(0.02)
        door.notify("resumed")
        door.step(tokens=9)
        assert (await reading).output_text == "abc"


async def test_thoughts_calls_and_results_are_sent_back(client: Client) -> None:
    async with client(FakeDoor(THOUGHT + CALL)) as sdk:
        first = await sdk.responses.create(**ASKED, tools=TOOLS)
    called = first.output[1]
    assert isinstance(called, ResponseFunctionToolCall)
    history: Any = [
        {"role": "user", "content": "Hi"},
        *first.output,
        {"type": "function_call_output", "call_id": called.call_id, "output": "r"},
    ]
    async with client(door := FakeDoor("done")) as sdk:
        second = await sdk.responses.create(**ASKED | {"input": history}, tools=TOOLS, store=False)
    assert (second.status, second.output_text) == ("completed", "done")
    assert bytes(door.asked[0].prompt).decode() == (
        f'+dir<user>Hi<assistant>[hm, so]!dir{{"at": "/é"}}<tool {called.call_id} dir>r<assistant>'
    )


class Point(BaseModel):
    x: int


async def test_an_answer_of_a_type(client: Client) -> None:
    async with client(door := FakeDoor('{"x": 3}')) as sdk:
        response = await sdk.responses.parse(**ASKED, text_format=Point)
        assert response.output_parsed == Point(x=3)
        async with sdk.responses.stream(**ASKED, text_format=Point) as stream:
            assert (await stream.get_final_response()).output_parsed == Point(x=3)
        assert door.asked[0].sampling.grammar == door.asked[1].sampling.grammar is not None


async def test_calls_of_a_type(client: Client) -> None:
    tool = openai.pydantic_function_tool(Point)["function"]
    call = '<tool_call>\n{"name": "Point", "arguments": {"x": 3}}\n</tool_call>'
    async with client(FakeDoor(call)) as sdk:
        response = await sdk.responses.parse(
            **ASKED,
            tools=[{"type": "function", "name": "Point", "parameters": tool["parameters"], "strict": True}],
            tool_choice="required",
        )
    [called] = response.output
    assert isinstance(called, ResponseFunctionToolCall)
    assert called.to_dict()["parsed_arguments"] == {"x": 3}


async def test_log_probabilities(client: Client) -> None:
    async with client(FakeDoor("ab")) as sdk:
        response = await sdk.responses.create(**ASKED, include=["message.output_text.logprobs"], top_logprobs=2)
    [said] = response.output
    assert isinstance(said, ResponseOutputMessage)
    [part] = said.content
    assert isinstance(part, ResponseOutputText)
    assert part.logprobs is not None
    assert [(row.token, [top.token for top in row.top_logprobs]) for row in part.logprobs] == [
        ("a", ["A", "B"]),
        ("b", ["A", "B"]),
    ]


async def test_tokens_are_counted(client: Client) -> None:
    async with client(door := FakeDoor()) as sdk:
        count = await sdk.responses.input_tokens.count(**ASKED, instructions="S", tools=TOOLS)
    assert (count.input_tokens, count.object) == (len("+dir<system>S<user>Hi<assistant>"), "response.input_tokens")
    assert door.asked == []


async def test_an_answer_that_was_cut(client: Client) -> None:
    async with client(FakeDoor("abcdef")) as sdk:
        stream = await sdk.responses.create(**ASKED, max_output_tokens=3, stream=True)
        last = [event async for event in stream][-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert (last.response.incomplete_details.reason, last.response.output_text) == ("max_output_tokens", "abc")


async def test_errors(client: Client) -> None:
    async with client(FakeDoor()) as sdk:
        with pytest.raises(openai.BadRequestError, match="exceeds the available context size") as refused:
            await sdk.responses.create(**ASKED | {"input": "x" * N_CTX})
        with pytest.raises(openai.BadRequestError, match="this server keeps no responses") as kept:
            await sdk.responses.create(**ASKED, previous_response_id="resp_1")
        with pytest.raises(openai.NotFoundError, match="keeps none"):
            await sdk.responses.retrieve("resp_1")
        with pytest.raises(openai.NotFoundError, match="keeps none"):
            await sdk.responses.delete("resp_1")
        with pytest.raises(openai.NotFoundError, match="keeps none"):
            await sdk.responses.cancel("resp_1")
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")
    assert kept.value.param == "previous_response_id"


async def test_an_error_within_a_stream(client: Client) -> None:
    async with client(door := paced()) as sdk, sdk.responses.stream(**ASKED) as stream:
        step(door)
        door.die("the engine process was killed")
        with pytest.raises(openai.APIError, match="the engine process was killed") as failed:
            await stream.until_done()
    assert failed.value.code == "engine_died"


async def test_a_stream_that_is_closed_frees_the_slot(client: Client) -> None:
    async with client(door := paced()) as sdk:
        async with sdk.responses.stream(**ASKED) as stream:
            step(door)
            assert (await anext(stream)).type == "response.created"
        await until(lambda: not door.open)
        assert door.cancelled == [0]
