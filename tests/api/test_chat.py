"""Chats, with OpenAI's own client."""

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.api.conftest import Connect
from tests.api.fake import FINGERPRINT, FakeDoor

NEVER_PARKED = {"parks": 0, "recomputes": 0, "parked_ms": 0}
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]


@pytest.fixture
async def openai(live: Connect) -> AsyncIterator[tuple[AsyncOpenAI, FakeDoor]]:
    door = FakeDoor("Grüße, 🌍!")
    async with live(door) as http, AsyncOpenAI(api_key="none", base_url=f"{http.base_url}/v1", max_retries=0) as client:
        yield client, door


async def test_whole(openai: tuple[AsyncOpenAI, FakeDoor]) -> None:
    client, door = openai
    answer = await client.chat.completions.create(model="toy", messages=HI, seed=7, temperature=0.5, top_p=0.9)
    assert answer.object == "chat.completion"
    assert answer.system_fingerprint == FINGERPRINT
    assert [(c.index, c.message.role, c.message.content, c.finish_reason) for c in answer.choices] == [
        (0, "assistant", "Grüße, 🌍!", "stop")
    ]
    prompt, tokens = len("<user>Hi"), len("Grüße, 🌍!".encode()) + 1
    assert answer.usage is not None
    assert answer.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "total_tokens": prompt + tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert answer.model_extra is not None
    timings = answer.model_extra.pop("timings")
    assert {name: timings[name] for name in timings if name.endswith("_n")} == {
        "cache_n": 0,
        "prompt_n": prompt,
        "predicted_n": tokens,
    }
    assert answer.model_extra == {"parkway": {"seed": 7}, "preempt": NEVER_PARKED}
    [asked] = door.asked
    assert (asked.seed, asked.sampling.temperature, asked.sampling.top_p) == (7, 0.5, 0.9)
    assert bytes(asked.prompt) == b"<user>Hi"


async def test_streamed(openai: tuple[AsyncOpenAI, FakeDoor]) -> None:
    client, door = openai
    stream = await client.chat.completions.create(
        model="toy", messages=HI, stream=True, n=2, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert [c.choices[0].delta.role for c in chunks[:2]] == ["assistant", "assistant"]
    texts = ["", ""]
    reasons = {}
    for chunk in chunks[:-1]:
        [choice] = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        if choice.finish_reason:
            told = dict(chunk.model_extra or {})
            assert ("timings" in told) == ("preempt" in told)
            told.pop("timings", None)
            reasons[choice.index] = (choice.finish_reason, told)
    seed = door.asked[0].seed
    assert texts == ["Grüße, 🌍!"] * 2
    told = {"parkway": {"seed": seed}}
    assert reasons == {0: ("stop", told), 1: ("stop", told | {"preempt": NEVER_PARKED})}
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == len("<user>Hi")
    assert {c.id for c in chunks} == {chunks[0].id}
    assert [(r.seed, r.choice_index, r.prompt_index) for r in door.asked] == [(seed, 0, 0), (seed, 1, 0)]


async def test_drawn_seed_is_told_and_differs(openai: tuple[AsyncOpenAI, FakeDoor]) -> None:
    client, door = openai
    answers = [await client.chat.completions.create(model="toy", messages=HI) for _ in range(2)]
    seeds = [answer.model_extra and answer.model_extra["parkway"]["seed"] for answer in answers]
    assert seeds == [request.seed for request in door.asked]
    assert seeds[0] != seeds[1]


async def test_logprobs(openai: tuple[AsyncOpenAI, FakeDoor]) -> None:
    client, _ = openai
    answer = await client.chat.completions.create(
        model="toy", messages=HI, logprobs=True, top_logprobs=2, max_completion_tokens=3
    )
    [choice] = answer.choices
    assert choice.finish_reason == "length"
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    rows = [(row.token, row.bytes, row.logprob) for row in choice.logprobs.content]
    assert rows == [("G", [71], -71 / 64), ("r", [114], -114 / 64), ("bytes:\\xc3", [0xC3], -0xC3 / 64)]
    top = [[(each.token, each.logprob) for each in row.top_logprobs] for row in choice.logprobs.content]
    assert top == [[("A", -0.5), ("B", -1.5)]] * 3


async def test_logprobs_of_a_stream_are_those_of_the_whole(openai: tuple[AsyncOpenAI, FakeDoor]) -> None:
    client, _ = openai
    whole = await client.chat.completions.create(model="toy", messages=HI, logprobs=True, top_logprobs=1)
    stream = await client.chat.completions.create(model="toy", messages=HI, logprobs=True, top_logprobs=1, stream=True)
    rows = [
        row
        async for chunk in stream
        if (logprobs := chunk.choices[0].logprobs) and logprobs.content
        for row in logprobs.content
    ]
    assert whole.choices[0].logprobs is not None
    assert rows == whole.choices[0].logprobs.content


@pytest.mark.parametrize(("stop", "text"), [("ße", "Grü"), (["🌍", "nowhere"], "Grüße, "), ("world", "Grüße, 🌍!")])
async def test_stop_strings(openai: tuple[AsyncOpenAI, FakeDoor], stop: str | list[str], text: str) -> None:
    client, door = openai
    answer = await client.chat.completions.create(model="toy", messages=HI, stop=stop)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (text, "stop")
    assert not door.open
    assert bool(door.cancelled) == (text != "Grüße, 🌍!")  # the engine was told only where it would have gone on


async def test_parts_and_roles(openai: tuple[AsyncOpenAI, FakeDoor]) -> None:
    client, door = openai
    await client.chat.completions.create(
        model="toy",
        messages=[
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None},
        ],
    )
    assert bytes(door.asked[0].prompt) == b"<system>Be kind.<user>one two<assistant>"


async def test_model_names(within: Connect) -> None:
    async with within(FakeDoor()) as http:
        for body in ({"model": "toy"}, {"model": "nick"}, {"model": None}, {}):
            answer = await http.post("/v1/chat/completions", json={**body, "messages": HI})
            assert (answer.status_code, answer.json()["model"]) == (200, "nick")
        listed = (await http.get("/v1/models")).json()
        assert [(m["id"], m["object"], m["max_model_len"]) for m in listed["data"]] == [("nick", "model", 256)]
        assert (await http.get("/v1/models/toy")).json()["id"] == "nick"
