"""llama-server's endpoints over a real server process with the default model: answers, progress, sleep."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.api.parked import Frames
from tests.e2e.test_serve import served

STORY = "Once upon a time there was a lighthouse keeper who "
GREEDY: dict[str, Any] = {"prompt": STORY, "n_predict": 24, "temperature": 0}


@pytest.fixture(scope="module")
def server(smollm2: Path) -> Iterator[str]:
    with served(smollm2) as (_, url):
        yield url


def engines(process: Any) -> list[psutil.Process]:
    children: list[psutil.Process] = psutil.Process(process.pid).children()
    return children


async def no_engine(process: Any) -> None:
    """The server says that it sleeps before the engine's process has quite ended."""
    while engines(process):
        await asyncio.sleep(0.02)


def told(text: str) -> list[dict[str, Any]]:
    return [json.loads(frame.removeprefix("data: ")) for frame in text.split("\n\n") if frame.startswith("data: ")]


async def test_both_apis_tell_the_same_answer(server: str) -> None:
    async with httpx.AsyncClient(base_url=server, timeout=60) as http:
        ours = (await http.post("/completion", json=GREEDY | {"return_tokens": True, "n_probs": 2})).json()
        streamed = told((await http.post("/completion", json=GREEDY | {"stream": True})).text)
        theirs = (await http.post("/v1/completions", json=GREEDY | {"max_tokens": 24, "logprobs": 2})).json()
        text = (await http.post("/detokenize", json={"tokens": ours["tokens"]})).json()["content"]
    assert ours["content"] == theirs["choices"][0]["text"] == text
    assert "".join(each["content"] for each in streamed) == text
    assert [i for each in streamed for i in each["tokens"]] == ours["tokens"]
    logprobs = [row["logprob"] for row in ours["completion_probabilities"]]
    assert logprobs == theirs["choices"][0]["logprobs"]["token_logprobs"]
    assert (ours["stop_type"], ours["tokens_predicted"]) == ("limit", 24)


async def test_no_token_at_all_leaves_the_prompt_in_the_cache(server: str) -> None:
    body = {"prompt": STORY * 30, "n_predict": 0}
    async with httpx.AsyncClient(base_url=server, timeout=60) as http:
        first = (await http.post("/completion", json=body)).json()
        again = (await http.post("/completion", json=body | {"n_predict": 1})).json()
    assert (first["content"], first["stop_type"], first["tokens_predicted"]) == ("", "limit", 0)
    assert again["timings"]["cache_n"] >= (again["tokens_evaluated"] - 1) // 64 * 64 > 0


async def test_the_progress_of_a_prompt(server: str) -> None:
    body = {"prompt": "Rain. " * 900, "n_predict": 2, "stream": True, "return_progress": True, "temperature": 0}
    async with httpx.AsyncClient(base_url=server, timeout=60) as http:
        chunks = told((await http.post("/completion", json=body)).text)
    progress = [each["prompt_progress"] for each in chunks if "prompt_progress" in each]
    done = [each["processed"] for each in progress]
    assert done == sorted(set(done))
    assert len(done) > 1
    assert progress[-1] == progress[-1] | {"total": done[-1], "cache": 0, "processed": chunks[-1]["tokens_evaluated"]}
    assert all("prompt_progress" in each for each in chunks[: len(progress)])


async def test_this_model_knows_no_gaps(server: str) -> None:
    async with httpx.AsyncClient(base_url=server) as http:
        answer = await http.post("/infill", json={"input_prefix": "a", "input_suffix": "b"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (501, "not_supported_error")


async def test_it_sleeps_and_the_next_request_gets_the_same_answer(smollm2: Path) -> None:
    with served(smollm2, "--sleep-idle-seconds", "0.3") as (process, url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            before = (await http.post("/completion", json=GREEDY)).json()
            while not (await http.get("/props")).json()["is_sleeping"]:
                await asyncio.sleep(0.02)
            await no_engine(process)
            assert (await http.get("/health")).status_code == 200
            both = await asyncio.gather(*(http.post("/completion", json=GREEDY) for _ in range(2)))
            assert [each.json()["content"] for each in both] == [before["content"]] * 2
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


async def test_parked_chats_and_copies_in_flight_are_waited_for_or_ended_with_it(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARKWAY_PREEMPT_EVERY", "8")
    monkeypatch.setenv("PARKWAY_PREEMPT_SLOW_COPY_MS", "200")
    with served(smollm2) as (process, url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            alone = (await http.post("/completion", json=GREEDY)).json()
            async with http.stream("POST", "/completion", json=GREEDY | {"stream": True}) as answer:
                reading = Frames(answer)
                await reading.until(": preempted")
                asked = await http.post("/sleep")
                assert (asked.status_code, asked.json()) == (202, {"is_sleeping": False})
                rest = [frame async for frame in reading._frames]
            assert json.loads(rest[-1].removeprefix("data: "))["preempt"]["parks"] >= 1
            while not (await http.get("/props")).json()["is_sleeping"]:
                await asyncio.sleep(0.02)
            async with http.stream("POST", "/completion", json=GREEDY | {"stream": True}) as answer:
                reading = Frames(answer)
                await reading.until(": preempted")  # its copy is under way for 200 ms
            while not (await http.post("/sleep")).json()["is_sleeping"]:
                await asyncio.sleep(0.02)
            await no_engine(process)
            again = (await http.post("/completion", json=GREEDY)).json()
            assert again["content"] == alone["content"]


async def woken(process: Any, http: httpx.AsyncClient) -> tuple[asyncio.Task[httpx.Response], list[psutil.Process]]:
    """A request that came while the engine slept, and the engine that it wakes."""
    while engines(process):
        await asyncio.sleep(0.01)
    asking = asyncio.create_task(http.post("/completion", json=GREEDY))
    while not (waking := engines(process)):
        await asyncio.sleep(0.001)
    return asking, waking


async def test_a_server_killed_while_its_engine_wakes_leaves_nothing(smollm2: Path) -> None:
    with served(smollm2, "--sleep-idle-seconds", "0") as (process, url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            asking, waking = await woken(process, http)
            process.kill()
            with pytest.raises(httpx.TransportError):
                await asking
        assert psutil.wait_procs(waking, 30)[1] == []


async def test_an_engine_killed_while_it_wakes_ends_the_server(smollm2: Path) -> None:
    with served(smollm2, "--sleep-idle-seconds", "0") as (process, url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            asking, waking = await woken(process, http)
            waking[0].kill()
            answer = await asking
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
        assert "could not be started again" in answer.json()["error"]["message"]
        assert process.wait(30) == 1
