"""How often the chats of a request were parked, told once; and the priority with which they come back."""

import json
from typing import Any

import pytest

from parkway.request import Preempt
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor
from tests.api.parked import ASKED, CHAT, COMPLETIONS, chunks, comments, paced, park, recomputed, resume, step, stream

ONCE = {"parks": 1, "recomputes": 1, "parked_ms": 40}


@pytest.mark.parametrize("url", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_record_is_in_the_body_or_in_the_last_chunk(within: Connect, url: str, streamed: bool) -> None:
    door = paced(preempt=Preempt(3, 1, 250))
    told = await stream(within, door, url, park(), resume(), stream=streamed)
    last = chunks(told)[-1] if streamed else json.loads(told)
    assert last["preempt"] == {"parks": 3, "recomputes": 1, "parked_ms": 250}
    assert last["choices"][0]["finish_reason"] == "stop"
    assert told.count('"preempt":') == 1
    assert streamed or "preempted" not in told


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_record_is_the_sum_over_all_chats_told_once(within: Connect, streamed: bool) -> None:
    fields: dict[str, Any] = {"prompt": ["Hi", "Ho"], "n": 2, "stream_options": {"include_usage": True}}
    door = paced(preempt=Preempt(3, 1, 250))
    told = await stream(within, door, COMPLETIONS, chats=4, stream=streamed, **fields)
    assert told.count('"preempt":') == 1
    finals = [c for c in chunks(told) if c["choices"] and c["choices"][0]["finish_reason"]] if streamed else []
    assert (finals[-1] if streamed else json.loads(told))["preempt"] == {
        "parks": 12,
        "recomputes": 4,
        "parked_ms": 1000,
    }


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_stop_string_ends_what_the_engine_has_not_summed_up(within: Connect, streamed: bool) -> None:
    acts = (step, park(), resume(), recomputed(), step, step, park(), step)
    told = await stream(within, paced("abSTOPcd"), CHAT, *acts, stream=streamed, stop="S")
    last = chunks(told)[-1] if streamed else json.loads(told)
    assert (last["choices"][0]["finish_reason"], last["preempt"]) == ("stop", ONCE)
    assert not streamed or comments(told) == [": preempted", ": resumed", ": recomputed"]  # none behind the end


@pytest.mark.parametrize("url", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(("fields", "expected"), [({}, 0), ({"priority": None}, 0), ({"priority": -(2**31)}, -(2**31))])
async def test_priority_reaches_the_engine(within: Connect, url: str, fields: dict[str, Any], expected: int) -> None:
    async with within(door := FakeDoor()) as http:
        assert (await http.post(url, json=ASKED[url] | fields | {"n": 2})).status_code == 200
    assert [request.priority for request in door.asked] == [expected] * 2
