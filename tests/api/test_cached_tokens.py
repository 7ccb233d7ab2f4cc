"""How many tokens of a prompt were found in pages: in `usage`, whole and streamed, and how a request goes without."""

import json
from typing import Any

import pytest

from tests.api.conftest import Connect
from tests.api.fake import FakeDoor

CHAT: tuple[str, dict[str, Any]] = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 200}]})
COMPLETION: tuple[str, dict[str, Any]] = ("/v1/completions", {"prompt": "x" * 200})


async def usage(within: Connect, door: FakeDoor, asked: tuple[str, dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The usage of a whole body, or of a stream's last chunk."""
    url, body = asked
    async with within(door) as http:
        answer = await http.post(url, json=body | fields)
    assert answer.status_code == 200, answer.text
    if not fields.get("stream"):
        return dict(answer.json()["usage"])
    last, done = answer.text.split("\n\n")[-3:-1]
    assert done == "data: [DONE]"
    return dict(json.loads(last.removeprefix("data: "))["usage"])


@pytest.mark.parametrize("asked", [CHAT, COMPLETION], ids=["chat", "completion"])
async def test_a_stream_tells_what_the_whole_body_tells(within: Connect, asked: tuple[str, dict[str, Any]]) -> None:
    whole = await usage(within, FakeDoor(cached=[128]), asked)
    streamed = await usage(within, FakeDoor(cached=[128]), asked, stream=True, stream_options={"include_usage": True})
    assert whole["prompt_tokens_details"] == {"cached_tokens": 128}
    assert streamed == whole


async def test_a_prompt_counts_once_and_as_its_first_choice_found_it(within: Connect) -> None:
    """The other choices find what the first has computed: counted too, more would be cached than was asked."""
    door = FakeDoor(cached=[64, 192, 192, 128, 192, 192])
    told = await usage(within, door, COMPLETION, prompt=["x" * 200, "y" * 200], n=3)
    assert [(r.prompt_index, r.choice_index) for r in door.asked] == [(p, c) for p in range(2) for c in range(3)]
    assert (told["prompt_tokens"], told["prompt_tokens_details"]) == (400, {"cached_tokens": 64 + 128})


@pytest.mark.parametrize("asked", [CHAT, COMPLETION], ids=["chat", "completion"])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, True), ({"cache_prompt": None}, True), ({"cache_prompt": True}, True), ({"cache_prompt": False}, False)],
    ids=str,
)
async def test_cache_prompt_reaches_the_engine(
    within: Connect, asked: tuple[str, dict[str, Any]], fields: dict[str, Any], expected: bool
) -> None:
    await usage(within, door := FakeDoor(), asked, **fields)
    assert [request.sampling.cache_prompt for request in door.asked] == [expected]
