"""Clients of a server that parks chats: streams read frame by frame, and what the server shows of its slots."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager
from typing import Any

import httpx

WORDS = {": preempted": "p", ": resumed": "r", ": recomputed": "c"}
DIFFERS = re.compile(r'"id":"[^"]*",|"created":\d+,|,"timings":\{[^}]*\}|,"preempt":\{[^}]*\}')
"""Between two streams of one answer."""


class Stream:
    """An answer that is being read, frame by frame."""

    def __init__(self, url: str, asked: dict[str, Any], tokens: int) -> None:
        path = "/v1/chat/completions" if "messages" in asked else "/v1/completions"
        self.frames: list[str] = []
        self._body = {"max_tokens": tokens, "ignore_eos": True, "stream": True, **asked}
        self._reading = asyncio.create_task(self._read(url + path))

    async def _read(self, url: str) -> None:
        async with httpx.AsyncClient(timeout=60) as http, http.stream("POST", url, json=self._body) as answer:
            rest = ""
            async for piece in answer.aiter_text():
                *frames, rest = (rest + piece).split("\n\n")
                self.frames += frames

    async def end(self) -> "Stream":
        await self._reading
        return self

    async def hang_up(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])

    @property
    def words(self) -> str:
        """The order of all that came: a dot for a chunk, a letter for a notice."""
        return "".join(WORDS.get(frame, "." if frame.startswith("data: ") else "") for frame in self.frames)

    @property
    def out(self) -> bool:
        return self.words.rstrip(".")[-1:] == "p"

    @property
    def said(self) -> list[str]:
        """Its chunks as they came, without what differs between two streams of one answer."""
        return [DIFFERS.sub("", frame) for frame in self.frames if frame.startswith("data: ")]

    @property
    def choices(self) -> list[dict[str, Any]]:
        chunks = [json.loads(frame.removeprefix("data: ")) for frame in self.said[:-1]]
        return [choice for chunk in chunks for choice in chunk["choices"]]

    @property
    def record(self) -> dict[str, int]:
        found = re.search(r'"preempt":(\{[^}]*\})', self.frames[-2])
        assert found, self.frames[-2]
        record: dict[str, int] = json.loads(found[1])
        return record

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.frames[-1].removeprefix("data: "))["error"]
        return error


class Plain:
    """A server that parks nobody, asked once for each answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._known: dict[str, Stream] = {}

    async def answer(self, asked: dict[str, Any], tokens: int) -> "Stream":
        key = f"{tokens} {asked}"
        if key not in self._known:
            self._known[key] = await Stream(self._url, asked, tokens).end()
        return self._known[key]


async def answer(url: str, asked: dict[str, Any], tokens: int) -> Stream:
    return await Stream(url, asked, tokens).end()


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.002)


async def states(http: httpx.AsyncClient) -> dict[int, str]:
    """By the number of the request, of those that have a slot."""
    await asyncio.sleep(0.002)
    slots = (await http.get("/slots")).json()
    return {slot["id_task"]: slot["state"] for slot in slots if slot["id_task"] >= 0}


async def idle(http: httpx.AsyncClient) -> None:
    """Waits until the server shows that nobody and nothing is left; the test's timeout ends a wait in vain."""
    gauges = r"num_requests_\w+|kv_cache_usage_perc|requests_preempted|preempt_ram_bytes|host_bytes"
    while True:
        page = (await http.get("/metrics")).text
        values = re.findall(rf"^\w+:(?:{gauges})(?:{{.*}})? (.*)$", page, re.MULTILINE)
        assert len(values) == 6
        if not await states(http) and set(values) == {"0.0"}:
            return


async def generated(http: httpx.AsyncClient) -> int:
    """Tokens of answers since the server is up."""
    found = re.search(r"^vllm:generation_tokens_total\S+ (\d+)", (await http.get("/metrics")).text, re.MULTILINE)
    assert found
    return int(found[1])


@asynccontextmanager
async def left_idle(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        yield http
        await idle(http)


async def newcomer(http: httpx.AsyncClient, known: Container[int]) -> int:
    """The number of a request that has got a slot."""
    while True:
        for number in await states(http):
            if number not in known:
                return number
