"""Parks of a real server with the default model: the bytes of its streams, clients that leave, engines that die."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.e2e.parked import Plain, Stream, answer, generated, idle, left_idle, newcomer, states, until
from tests.e2e.test_serve import served

CROWDED = ("-c", "256", "-np", "3")
"""Four pages: any chat fits, two of more than 128 tokens don't."""
EVERY, SLOW, FAIL = "PARKWAY_PREEMPT_EVERY", "PARKWAY_PREEMPT_SLOW_COPY_MS", "PARKWAY_PREEMPT_FAIL_SAVE"
TOKENS = 90
"""Of an answer: two chats of some 50 tokens may start in four pages, and outgrow them."""
STORY = "The whale that came into the harbour in the spring was grey and very old. " * 3
GREEDY = {"prompt": STORY, "temperature": 0, "seed": 1, "logprobs": 5}
SAMPLED = {"prompt": "Once upon a time, " + STORY, "temperature": 0.9, "top_p": 0.9, "seed": 7, "logprobs": 0}
CHAT = {"messages": [{"role": "user", "content": "Tell me a story."}], "seed": 3, "logprobs": True, "top_logprobs": 2}
CROWD = (GREEDY, SAMPLED, CHAT)


@contextmanager
def knobs_set(**knobs: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in knobs.items():
            environment.setenv(name, str(value))
        yield


@pytest.fixture(scope="module")
def plain(smollm2: Path) -> Iterator[Plain]:
    with served(smollm2, "-c", "1024") as (_, url):
        yield Plain(url)


@pytest.fixture(scope="module")
def eager(smollm2: Path) -> Iterator[str]:
    """Parks a chat behind each of its tokens, its first too."""
    with knobs_set(**{EVERY: 1}), served(smollm2, "-c", "1024") as (_, url):
        yield url


@pytest.fixture(scope="module")
def crowded(smollm2: Path) -> Iterator[str]:
    with served(smollm2, *CROWDED) as (_, url):
        yield url


@pytest.fixture(scope="module")
def slow(smollm2: Path) -> Iterator[str]:
    with knobs_set(**{EVERY: 8, SLOW: 250}), served(smollm2, "-c", "256") as (_, url):
        yield url


@pytest.fixture(scope="module")
def again(smollm2: Path) -> Iterator[str]:
    """Computes parked chats again, a few rows a step."""
    with served(smollm2, *CROWDED, "--preempt", "recompute", "-b", "4") as (_, url):
        yield url


@pytest.mark.parametrize("asked", [GREEDY, SAMPLED, CHAT], ids=["greedy", "sampled", "chat"])
async def test_a_chat_that_is_parked_behind_each_token_streams_the_same_bytes(
    plain: Plain, eager: str, asked: dict[str, Any]
) -> None:
    async with left_idle(eager):
        alone, parked = await plain.answer(asked, 24), await answer(eager, asked, 24)
    assert parked.said == alone.said
    assert parked.words.replace("pr", "") == alone.words
    assert re.fullmatch(r"\.{1,2}(pr\.){23}\.+", parked.words)  # a chat begins with its role
    assert (parked.record["parks"], parked.record["recomputes"]) == (23, 0)


async def test_a_stop_string_is_found_across_a_park(plain: Plain, eager: str) -> None:
    whole = await plain.answer(GREEDY, 24)
    texts = [choice["text"] for choice in whole.choices]
    stop = texts[9][-2:] + texts[10] + texts[11][:2]
    asked = GREEDY | {"stop": [stop]}
    alone, parked = await plain.answer(asked, 24), await answer(eager, asked, 24)
    assert parked.said == alone.said
    assert "".join(choice["text"] for choice in parked.choices) == "".join(texts).partition(stop)[0]
    assert parked.choices[-1]["finish_reason"] == "stop"
    assert parked.words.count("p") == parked.record["parks"] >= 11


async def test_a_park_that_finds_no_memory_is_computed_again_and_told(plain: Plain, smollm2: Path) -> None:
    with knobs_set(**{EVERY: 1, FAIL: 3}), served(smollm2, "-c", "256") as (_, url):
        async with left_idle(url):
            alone, parked = await plain.answer(SAMPLED, 8), await answer(url, SAMPLED, 8)
    assert parked.said == alone.said
    assert parked.words == ".pr.pr.prc.pr.pr.pr.pr..."


async def test_chats_that_outgrow_the_pool_get_the_answers_of_each_alone(plain: Plain, crowded: str) -> None:
    asked = [*CROWD, GREEDY | {"seed": 2, "temperature": 1}]
    async with left_idle(crowded) as http:
        alone = [await plain.answer(each, TOKENS) for each in asked]
        together = await asyncio.gather(*(answer(crowded, each, TOKENS) for each in asked))
        page = (await http.get("/metrics")).text
    assert [each.said for each in together] == [each.said for each in alone]
    for each in together:
        assert re.fullmatch(r"\.*(pr(c|\.)\.*)*", each.words)
        counts = [each.words.count(word) for word in "prc"]
        assert counts == [each.record["parks"]] * 2 + [each.record["recomputes"]]
    parks = sum(each.record["parks"] for each in together)
    assert parks > 0
    assert re.search(rf"^llamacpp:n_preempt_total {parks}.0$", page, re.MULTILINE)


async def test_a_whole_answer_is_the_same_and_tells_its_parks(plain: Plain, eager: str) -> None:
    alone = await plain.answer(SAMPLED, 24)
    async with httpx.AsyncClient(timeout=60) as http:
        body = SAMPLED | {"max_tokens": 24, "ignore_eos": True}
        parked = (await http.post(f"{eager}/v1/completions", json=body)).json()
    [choice] = parked["choices"]
    assert choice["text"] == "".join(each["text"] for each in alone.choices)
    rows = [each["logprobs"]["token_logprobs"] for each in alone.choices if each["logprobs"]]
    assert choice["logprobs"]["token_logprobs"] == [row for some in rows for row in some]
    assert (alone.record["parks"], parked["preempt"]["parks"]) == (0, 23)


@pytest.mark.parametrize(
    ("server", "state", "tokens"),
    [
        ("again", "prefill", 40),
        ("slow", "decode", 28),
        ("slow", "preempting", 28),
        ("crowded", "preempted", TOKENS),
        ("slow", "restoring", 28),
        ("again", "replaying", 120),
    ],
)
async def test_a_client_that_leaves_in_any_state_frees_all_and_its_twin_goes_on(
    plain: Plain, request: pytest.FixtureRequest, server: str, state: str, tokens: int
) -> None:
    """Two chats with the same prompt; then the one that left is asked again."""
    url = request.getfixturevalue(server)
    alone = await plain.answer(GREEDY, tokens)
    async with left_idle(url) as http, asyncio.timeout(60):
        before, streams = await generated(http), dict[int, Stream]()
        held: list[int] = []
        while not held:
            if len(streams) < 2:
                stream = Stream(url, GREEDY, tokens)
                streams[await newcomer(http, streams)] = stream
            now = await states(http)
            held = [number for number in streams if len(streams) == 2 and now.get(number) == state]
        gone = streams.pop(held[0])
        await gone.hang_up()
        for twin in streams.values():
            assert (await twin.end()).said == alone.said
        await idle(http)
        assert await generated(http) - before < 2 * tokens
        assert (await answer(url, GREEDY, tokens)).said == alone.said


async def crowd(url: str) -> list[Stream]:
    """Three streams, of which one at least is parked."""
    streams = [Stream(url, each, TOKENS) for each in CROWD]
    await until(lambda: any(stream.out for stream in streams))
    return streams


def the_engine(server: "subprocess.Popen[str]") -> psutil.Process:
    (child,) = psutil.Process(server.pid).children()
    return child


async def test_an_engine_that_is_killed_while_a_chat_is_parked_ends_every_stream(smollm2: Path) -> None:
    with served(smollm2, *CROWDED) as (process, url):
        streams = await crowd(url)
        os.kill(the_engine(process).pid, signal.SIGKILL)
        for stream in streams:
            await stream.end()
            assert "killed by SIGKILL" in stream.error["message"]
        assert process.wait(20) == 1


async def test_sigterm_lets_parked_chats_come_back_and_finish(plain: Plain, smollm2: Path) -> None:
    with served(smollm2, *CROWDED, "--drain-seconds", "60") as (process, url):
        streams = await crowd(url)
        process.send_signal(signal.SIGTERM)
        for stream, asked in zip(streams, CROWD, strict=True):
            assert (await stream.end()).said == (await plain.answer(asked, TOKENS)).said
        assert process.wait(20) == 0


async def test_what_is_parked_longer_than_the_drain_is_told(smollm2: Path) -> None:
    with served(smollm2, *CROWDED, "--drain-seconds", "0") as (process, url):
        streams, engine = await crowd(url), the_engine(process)
        process.send_signal(signal.SIGTERM)
        for stream in streams:
            await stream.end()
            assert stream.error["code"] == "shutting_down"
        assert process.wait(20) == 0
        assert not engine.is_running()
