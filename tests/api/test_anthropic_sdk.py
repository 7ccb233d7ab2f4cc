"""Anthropic's own Python client against a server on a socket: what it makes of streams, parks, tools and errors."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from pydantic import BaseModel

from parkway.api import pulse
from parkway.request import Preempt
from tests.api.anthropic_chats import CALL, THOUGHT, TOOL, text, text_block
from tests.api.conftest import Connect
from tests.api.fake import N_CTX, FakeDoor
from tests.api.parked import paced, park, recomputed, resume, step, until

MODEL = "claude-sonnet-5"
ASKED: dict[str, Any] = {"model": MODEL, "max_tokens": 200, "messages": [{"role": "user", "content": "Hi"}]}
TOOLS: Any = [TOOL]
Client = Callable[..., AbstractAsyncContextManager[AsyncAnthropic]]


@pytest.fixture
def client(live: Connect) -> Client:
    @asynccontextmanager
    async def connect(door: FakeDoor, **settings: Any) -> AsyncIterator[AsyncAnthropic]:
        async with (
            live(door, text(), **settings) as http,
            AsyncAnthropic(api_key="none", base_url=str(http.base_url), max_retries=0) as sdk,
        ):
            yield sdk

    return connect


async def test_a_message(client: Client) -> None:
    async with client(FakeDoor("Grüße", cached=[3])) as sdk:
        message = await sdk.messages.create(**ASKED, system="S", extra_body={"seed": 5})
    assert [block.to_dict() for block in message.content] == [text_block("Grüße")]
    assert (message.model, message.stop_reason, message.stop_sequence) == ("toy", "end_turn", None)
    assert message.usage.cache_read_input_tokens == 3
    assert message.usage.input_tokens + 3 == len("<system>S<user>Hi<assistant>")
    assert message.usage.output_tokens == len("Grüße".encode()) + 1
    assert message.model_extra == {
        "parkway": {"seed": 5},
        "preempt": {"parks": 0, "recomputes": 0, "parked_ms": 0},
    }
    assert message._request_id is not None
    assert message._request_id.startswith("req_")


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


@pytest.mark.parametrize("notices", ["comments", "chunks"])
@pytest.mark.parametrize(
    "when", [lambda step: step == 0, lambda step: step == 30, lambda step: step % 4 == 3], ids=["first", "30", "fourth"]
)
async def test_a_parked_stream_is_read_as_any(client: Client, when: Callable[[int], bool], notices: str) -> None:
    answer = f"{THOUGHT}I look.\n{CALL}"
    alone, expected = await _read(client, FakeDoor(answer))
    told, message = await _read(client, ParkingDoor(answer, when), notices=notices)
    assert [event.type for event in told] == [event.type for event in alone]
    delta = next(event for event in told if event.type == "message_delta")
    assert delta.model_extra == {"preempt": {"parks": 1, "recomputes": 1, "parked_ms": 40}}
    thought, said, called = message.content
    assert [thought, said] == expected.content[:2]
    assert isinstance(thought, anthropic.types.ThinkingBlock)
    assert (thought.thinking, thought.signature) == ("hm, so", "parkway")
    assert isinstance(called, anthropic.types.ToolUseBlock)
    assert (called.name, called.input) == ("dir", {"at": "/é"})
    assert message.stop_reason == "tool_use"


async def _read(client: Client, door: FakeDoor, **extra: Any) -> tuple[list[Any], anthropic.types.Message]:
    """All events of a stream and what the client makes of them."""
    async with client(door) as sdk, sdk.messages.stream(**ASKED, tools=TOOLS, extra_body=extra) as stream:
        return [event async for event in stream], await stream.get_final_message()


async def test_a_stream_waits_through_keepalives(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "KEEPALIVE_SECONDS", 0.001)
    async with client(door := paced()) as sdk, sdk.messages.stream(**ASKED) as stream:
        door.notify("preempted")
        reading = asyncio.create_task(stream.get_final_text())
        await asyncio.sleep(0.02)
        door.notify("resumed")
        door.step(tokens=9)
        assert await reading == "abc"


async def test_thoughts_calls_and_results_are_sent_back(client: Client) -> None:
    async with client(FakeDoor(THOUGHT + CALL)) as sdk:
        first = await sdk.messages.create(**ASKED, tools=TOOLS, thinking={"type": "adaptive"})
    thought, called = first.content
    assert isinstance(thought, anthropic.types.ThinkingBlock)
    assert (thought.thinking, thought.signature) == ("hm, so", "parkway")
    assert isinstance(called, anthropic.types.ToolUseBlock)
    result: Any = {"type": "tool_result", "tool_use_id": called.id, "content": "r"}
    history: Any = [*ASKED["messages"], first.to_param(), {"role": "user", "content": [result]}]
    async with client(door := FakeDoor("done")) as sdk:
        second = await sdk.messages.create(**ASKED | {"messages": history}, tools=TOOLS)
    assert second.stop_reason == "end_turn"
    assert bytes(door.asked[0].prompt).decode() == (
        f'+dir<user>Hi<assistant>[hm, so]!dir{{"at": "/é"}}<tool {called.id} dir>r<assistant>'
    )


class Point(BaseModel):
    x: int


async def test_an_answer_of_a_type(client: Client) -> None:
    async with client(door := FakeDoor('{"x": 3}')) as sdk:
        message = await sdk.messages.parse(**ASKED, output_format=Point)
        assert message.parsed_output == Point(x=3)
        assert door.asked[0].sampling.grammar is not None


async def test_tokens_are_counted(client: Client) -> None:
    async with client(door := FakeDoor()) as sdk:
        count = await sdk.messages.count_tokens(model=MODEL, messages=ASKED["messages"], system="S", tools=TOOLS)
    assert count.input_tokens == len("+dir<system>S<user>Hi<assistant>")
    assert door.asked == []


async def test_stop_sequences(client: Client) -> None:
    async with client(FakeDoor("one END two")) as sdk, sdk.messages.stream(**ASKED, stop_sequences=["END"]) as stream:
        message = await stream.get_final_message()
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")
    assert [block.to_dict() for block in message.content] == [text_block("one ")]


async def test_the_beta_client(client: Client) -> None:
    async with client(FakeDoor("abc")) as sdk:
        message = await sdk.beta.messages.create(**ASKED, betas=["context-management-2025-06-27"])
    assert [block.to_dict() for block in message.content] == [text_block("abc")]


async def test_errors(client: Client) -> None:
    long: Any = [{"role": "user", "content": "x" * N_CTX}]
    async with client(FakeDoor()) as sdk:
        with pytest.raises(anthropic.BadRequestError) as refused:
            await sdk.messages.create(**ASKED | {"messages": long})
        with pytest.raises(anthropic.NotFoundError) as unknown:
            await sdk.messages.create(**ASKED | {"model": "other"})
    assert (refused.value.type, unknown.value.type) == ("invalid_request_error", "not_found_error")
    assert "prompt is too long" in str(refused.value)
    assert refused.value.request_id == refused.value.response.json()["request_id"]


async def test_an_error_within_a_stream(client: Client) -> None:
    async with client(door := paced()) as sdk, sdk.messages.stream(**ASKED) as stream:
        step(door)
        door.die("the engine process was killed")
        with pytest.raises(anthropic.APIStatusError, match="the engine process was killed") as failed:
            await stream.until_done()
    assert failed.value.type == "api_error"


async def test_a_stream_that_is_closed_frees_the_slot(client: Client) -> None:
    async with client(door := paced()) as sdk:
        async with sdk.messages.stream(**ASKED) as stream:
            step(door)
            assert (await anext(stream)).type == "message_start"
        await until(lambda: not door.open)
        assert door.cancelled == [0]
