"""How far the prompt of a stream has got."""

import asyncio
import json
from typing import Any

import pytest

from parkway.api import llama_progress
from parkway.report import SlotView, View
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor
from tests.api.parked import Frames, frames, until

URL = "/completion"
PROMPT = [1] * 100


def prefill(computed: int, state: str = "prefill") -> View:
    return View([SlotView(0, 0, state, 100, 100, computed, 2, cached=64)])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_progress, "POLL_SECONDS", 0.001)


async def told(reading: Frames) -> list[int]:
    (frame,) = await reading.take(1)
    chunk = json.loads(frame.removeprefix("data: "))
    assert (chunk["content"], chunk["stop"]) == ("", False)
    progress = chunk["prompt_progress"]
    assert progress["time_ms"] >= 0
    return [progress[name] for name in ("total", "cache", "processed")]


async def test_it_is_told_whenever_the_engine_tells_more(live: Connect) -> None:
    async with live(door := FakeDoor("ab", paced=True, cached=[64])) as http:
        body = {"prompt": PROMPT, "stream": True, "return_progress": True}
        async with http.stream("POST", URL, json=body) as answer:
            reading = Frames(answer)
            for computed in (64, 80):
                door.view = prefill(computed)
                assert await told(reading) == [100, 64, computed]
            for view in (prefill(80), prefill(90, "preempted"), prefill(70)):
                door.view = view
                await asyncio.sleep(0.01)  # looked at, and nothing of it is told
            door.step()
            assert await told(reading) == [100, 64, 100]
            door.view = prefill(100)
            while door.open:
                door.step()
            (rest,) = [[frame async for frame in reading._frames]]
    assert not any("prompt_progress" in frame for frame in rest)
    assert len(rest) == 4


async def test_a_prompt_that_is_done_at_once_is_told_once(within: Connect) -> None:
    async with within(FakeDoor("ab", cached=[1])) as http:
        text = (await http.post(URL, json={"prompt": "Hi", "stream": True, "return_progress": True})).text
    with_progress = [frame for frame in frames(text) if "prompt_progress" in frame]
    assert [frames(text)[0]] == with_progress


@pytest.mark.parametrize("fields", [{"stream": True}, {"return_progress": True}])
async def test_others_are_told_none(within: Connect, fields: dict[str, Any]) -> None:
    async with within(FakeDoor("ab")) as http:
        assert "prompt_progress" not in (await http.post(URL, json={"prompt": "Hi"} | fields)).text


async def test_a_client_that_leaves_stops_the_looking(live: Connect) -> None:
    async with live(door := FakeDoor("ab", paced=True)) as http:
        body = {"prompt": PROMPT, "stream": True, "return_progress": True}
        async with http.stream("POST", URL, json=body) as answer:
            reading = Frames(answer)
            door.view = prefill(64)
            await told(reading)
        await until(lambda: door.cancelled == [0])
        await asyncio.sleep(0)
