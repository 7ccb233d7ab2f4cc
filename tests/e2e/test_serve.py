"""A real server process with the default model, as a user starts it, and the real OpenAI client."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIError, AsyncOpenAI
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessageParam

from tests.e2e.parked import idle

MODEL = "SmolLM2-135M-Instruct.Q4_1"
QUESTIONS = ("Name three colours.", "What is 2 + 2?", "Tell me about whales.", "Write a short poem about rain.")


@contextmanager
def served(model: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """(process, base URL) of a server that is up; killed at the end if it still runs."""
    command = [sys.executable, "-m", "parkway.cli", "serve", str(model), "--port", "0", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        for line in process.stderr:
            if found := re.search(r"http://\S+", line):
                yield process, found[0]
                break
        else:
            pytest.fail("the server ended before it was up")
    finally:
        process.kill()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def server(smollm2: Path) -> Iterator[str]:
    with served(smollm2) as (_, url):
        yield url


async def ask(
    client: AsyncOpenAI, question: str, max_tokens: int = 40, begun: asyncio.Event | None = None, **more: Any
) -> tuple[str, list[float]]:
    """A streamed answer's text and the log-probability of each of its tokens. `begun` is set when the first is here."""
    text, logprobs = "", []
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": question}],
        max_tokens=max_tokens,
        logprobs=True,
        stream=True,
        **more,
    )
    async for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            logprobs += [row.logprob for row in (choice.logprobs.content if choice.logprobs else None) or []]
        if begun and logprobs:
            begun.set()
    return text, logprobs


@pytest.mark.parametrize(
    "how", [{"temperature": 0}, {"temperature": 0.9, "seed": 7, "top_p": 0.9}], ids=["greedy", "sampled"]
)
async def test_four_chats_at_once_get_the_answers_that_each_gets_alone(server: str, how: dict[str, Any]) -> None:
    async with AsyncOpenAI(base_url=f"{server}/v1", api_key="none") as client:
        alone = [await ask(client, question, **how) for question in QUESTIONS]
        together = await asyncio.gather(*(ask(client, question, **how) for question in QUESTIONS))
    assert together == alone
    assert all(len(logprobs) > 5 for _, logprobs in alone)


async def test_embeddings_are_the_same_alone_and_beside_chats(server: str) -> None:
    async with AsyncOpenAI(base_url=f"{server}/v1", api_key="none") as client:

        async def embedded(*texts: str) -> list[list[float]]:
            made = await client.embeddings.create(model=MODEL, input=[*texts])
            return [each.embedding for each in made.data]

        alone = [vector for question in QUESTIONS for vector in await embedded(question)]
        *together, _ = await asyncio.gather(embedded(*QUESTIONS), embedded(*QUESTIONS), ask(client, "Count."))
    assert together == [alone, alone]
    assert len(alone[0]) == 576
    assert sum(number**2 for number in alone[0]) == pytest.approx(1)


async def said(
    client: AsyncOpenAI, messages: list[ChatCompletionMessageParam], **more: Any
) -> tuple[str, list[float], CompletionUsage]:
    """A whole answer: its text, the log-probabilities of its tokens, and what it used."""
    answer = await client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=80, temperature=0, logprobs=True, **more
    )
    [choice] = answer.choices
    assert choice.message.content
    assert choice.logprobs
    assert answer.usage
    return choice.message.content, [row.logprob for row in choice.logprobs.content or []], answer.usage


def cached(usage: CompletionUsage) -> int | None:
    assert usage.prompt_tokens_details
    return usage.prompt_tokens_details.cached_tokens


async def test_the_pages_of_a_chat_are_found_by_the_same_prompt_and_by_its_next_turn(server: str) -> None:
    lines = " ".join(f"Line {number}: the grey whale swam past the harbour again." for number in range(12))
    asked: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": f"{lines} Write a long story about that whale."}
    ]
    async with AsyncOpenAI(base_url=f"{server}/v1", api_key="none") as client:
        text, logprobs, cold = await said(client, asked)
        again = await said(client, asked)
        without = await said(client, asked, extra_body={"cache_prompt": False})
        asked += [{"role": "assistant", "content": text}, {"role": "user", "content": "How many times?"}]
        turn = await said(client, asked)
        turn_without = await said(client, asked, extra_body={"cache_prompt": False})
    assert again[:2] == without[:2] == (text, logprobs)
    assert turn[:2] == turn_without[:2]
    prompt = cold.prompt_tokens
    assert prompt >= 130
    assert [cached(each) for each in (cold, again[2], without[2])] == [0, (prompt - 1) // 64 * 64, 0]
    computed = prompt + cold.completion_tokens - 1  # the last token of an answer is never computed
    assert computed // 64 > prompt // 64
    assert (cached(turn[2]), cached(turn_without[2])) == (computed // 64 * 64, 0)


async def test_prompt_scores_are_keyed_by_position_and_do_not_depend_on_the_form_of_the_prompt(server: str) -> None:
    async with httpx.AsyncClient(base_url=server, timeout=60) as http:
        text = "The whale is the largest animal that ever lived. " * 30
        ids = (await http.post("/tokenize", json={"content": text})).json()["tokens"]
        asked = {"echo": True, "max_tokens": 0, "logprobs": 5, "temperature": 0}
        answer = (await http.post("/v1/completions", json={"prompt": [ids, ids[:70]], **asked})).json()
        as_text = (await http.post("/v1/completions", json={"prompt": text, **asked})).json()
    rows, shorter = (choice["logprobs"]["token_logprobs"] for choice in answer["choices"])
    assert rows == as_text["choices"][0]["logprobs"]["token_logprobs"]
    assert len(rows) == len(ids)
    assert rows[0] is None
    assert rows[:70] == shorter


async def test_a_client_that_leaves_frees_its_slot(server: str) -> None:
    body = {"prompt": "Once upon a time", "max_tokens": 8000, "ignore_eos": True, "stream": True}
    async with httpx.AsyncClient(base_url=server, timeout=60) as http:
        async with http.stream("POST", "/v1/completions", json=body) as stream:
            await anext(stream.aiter_lines())
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/v1/completions", json={**body, "stream": False}, timeout=0.5)
        await idle(http)


async def test_an_engine_that_dies_ends_every_stream_with_an_error_and_the_server(smollm2: Path) -> None:
    with served(smollm2) as (process, url):
        child = int(subprocess.check_output(["pgrep", "-P", str(process.pid), "-f", "parkway.engine.child"], text=True))
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            begun = [asyncio.Event() for _ in QUESTIONS]
            streams = [
                asyncio.create_task(ask(client, question, 2000, first, extra_body={"ignore_eos": True}))
                for question, first in zip(QUESTIONS, begun, strict=True)
            ]
            await asyncio.gather(*(first.wait() for first in begun))
            os.kill(child, signal.SIGKILL)
            ends = await asyncio.gather(*streams, return_exceptions=True)
        assert all(isinstance(end, APIError) and "engine" in str(end) for end in ends), ends
        assert process.wait(20) == 1


async def test_sigterm_lets_open_answers_finish(smollm2: Path) -> None:
    with served(smollm2) as (process, url):
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            long: dict[str, Any] = {"temperature": 0, "max_tokens": 300, "extra_body": {"ignore_eos": True}}
            whole, _ = await ask(client, QUESTIONS[2], **long)
            begun = asyncio.Event()
            asked = asyncio.create_task(ask(client, QUESTIONS[2], begun=begun, **long))
            await begun.wait()
            process.send_signal(signal.SIGTERM)
            assert (await asked)[0] == whole
        assert process.wait(20) == 0


def test_random_weights_of_a_shape_are_served_like_a_file() -> None:
    with served(Path("shape:tiny-qwen3:Q8_0")) as (_, url):
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "seed": 1}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).json()
    assert answer["model"] == "tiny-qwen3-Q8_0"
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["message"]["content"]


def test_a_second_sigterm_exits_at_once(smollm2: Path) -> None:
    with served(smollm2) as (process, url):
        body = {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            for _ in range(8):
                next(lines)  # it still answers while it drains
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 128 + signal.SIGTERM
