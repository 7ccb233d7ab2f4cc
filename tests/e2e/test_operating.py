"""A real server as one runs it for others: it loads, has keys and a short queue, and writes a log."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, AuthenticationError, RateLimitError

FLAGS = ("--api-key", "ours,theirs", "--parallel", "1", "--max-queue", "1", "--log-format", "json")


@contextmanager
def begun(model: Path, *flags: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server that has only just been started, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "parkway.cli", "serve", str(model), "--port", str(port), *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate(timeout=30)


async def first_answer(http: httpx.AsyncClient, process: "subprocess.Popen[str]") -> httpx.Response:
    """The first that the port gives."""
    while process.poll() is None:
        try:
            return await http.get("/health")
        except httpx.ConnectError:
            await asyncio.sleep(0.01)
    raise AssertionError("the server has ended")


async def test_from_the_first_moment_to_the_last(smollm2: Path) -> None:
    with begun(smollm2, *FLAGS) as (process, url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            health = await first_answer(http, process)
            assert (health.status_code, health.json()) == (503, {"status": "loading model"})
            early = await http.post("/v1/completions", json={"prompt": "Hi"}, headers={"x-api-key": "ours"})
            assert early.json() == {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
            while (await http.get("/health")).status_code == 503:
                await asyncio.sleep(0.01)
            await _asks(url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr
        told = [json.loads(line) for line in process.stderr]
    _check_log(told)


async def _asks(url: str) -> None:
    """A stranger; then one who runs, one who waits, and one for whom there is no room."""
    with pytest.raises(AuthenticationError):
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="stranger") as client:
            await client.models.list()
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="ours", max_retries=0) as client:
        asked: dict[str, Any] = {"model": "SmolLM2-135M-Instruct.Q4_1", "prompt": "Once", "stream": True}
        asked |= {"max_tokens": 200, "extra_body": {"ignore_eos": True}}
        streams = [await client.completions.create(**asked) for _ in range(2)]
        with pytest.raises(RateLimitError) as refused:
            await client.completions.create(**asked)
        assert 1 <= int(refused.value.response.headers["retry-after"]) <= 600
        assert refused.value.request_id is not None
        for stream in streams:
            assert [chunk async for chunk in stream][-1].choices[0].finish_reason == "length"


def _check_log(told: list[dict[str, Any]]) -> None:
    lines = [line for line in told if line.get("event") == "request"]
    assert [line["status"] for line in lines] == [503, 401, 429, 200, 200]
    assert [line["answer_tokens"] for line in lines if "answer_tokens" in line] == [200, 200]
    assert lines[2]["client"] == lines[3]["client"] != "ours"
    assert any(line["message"].startswith("serving ") for line in told)
