"""/completion: whole bodies in llama-server's form, prompts in all of its, what a stream tells."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from msgspec import structs

from parkway.report import SlotView, View
from parkway.request import Preempt
from tests.api.conftest import Connect
from tests.api.fake import EOS, FakeDoor, byte_text
from tests.api.parked import Frames, comments, frames, park, resume, until

URL = "/completion"


async def asked(within: Connect, door: FakeDoor, url: str = URL, **fields: Any) -> Any:
    async with within(door) as http:
        answer = await http.post(url, json={"prompt": "Hi"} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def streamed(within: Connect, door: FakeDoor, **fields: Any) -> list[dict[str, Any]]:
    async with within(door) as http:
        answer = await http.post(URL, json={"prompt": "Hi", "stream": True} | fields)
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(frame.removeprefix("data: ")) for frame in frames(answer.text) if not frame.startswith(":")]


@pytest.mark.parametrize("url", ["/completion", "/completions"])
async def test_a_whole_body(within: Connect, url: str) -> None:
    door = FakeDoor("a\nb", cached=[1], preempt=Preempt(2, 1, 30))
    body = await asked(within, door, url, seed=5)
    settings, timings = body.pop("generation_settings"), body.pop("timings")
    assert body == {
        "index": 0,
        "content": "a\nb",
        "tokens": [],
        "stop": True,
        "id_slot": -1,
        "tokens_predicted": 4,
        "tokens_evaluated": 2,
        "model": "nick",
        "prompt": "Hi",
        "has_new_line": True,
        "truncated": False,
        "stop_type": "eos",
        "stopping_word": "",
        "tokens_cached": 5,
        "preempt": {"parks": 2, "recomputes": 1, "parked_ms": 30},
    }
    assert (settings["seed"], settings["n_predict"], settings["stream"]) == (5, -1, False)
    counts = [timings[name] for name in ("cache_n", "prompt_n", "predicted_n")]
    assert counts == [1, 1, 4]
    assert timings["prompt_per_second"] * timings["prompt_per_token_ms"] == pytest.approx(1000)


@pytest.mark.parametrize(
    ("fields", "stop_type", "word", "content"),
    [
        ({"n_predict": 2}, "limit", "", "ab"),
        ({"n_predict": 0}, "limit", "", ""),
        ({"stop": ["", "c"]}, "word", "c", "ab"),
        ({"n_predict": -1}, "eos", "", "abc"),
    ],
)
async def test_why_it_stopped(within: Connect, fields: dict[str, Any], stop_type: str, word: str, content: str) -> None:
    body = await asked(within, FakeDoor("abc"), **fields)
    assert (body["stop_type"], body["stopping_word"], body["content"]) == (stop_type, word, content)


async def test_the_end_of_the_context_truncates(within: Connect) -> None:
    for n_predict, truncated in ((5, False), (6, True)):
        body = await asked(within, FakeDoor("x" * 300), prompt=[1] * 250, n_predict=n_predict)
        assert (body["stop_type"], body["truncated"]) == ("limit", truncated)


async def test_where_contexts_are_shifted_only_what_has_lost_tokens_is_truncated(within: Connect) -> None:
    for n_predict, truncated in ((5, False), (6, False), (7, True)):
        door = FakeDoor("x" * 300)
        door.facts = structs.replace(door.facts, shifts=True)
        body = await asked(within, door, prompt=[1] * 250, n_predict=n_predict)
        assert (body["tokens_predicted"], body["truncated"]) == (n_predict, truncated)


@pytest.mark.parametrize(("asked_to_keep", "kept"), [(None, 1), (0, 1), (5, 6), (-1, -1)])
async def test_the_token_that_begins_a_prompt_is_kept_beside_the_others(
    within: Connect, asked_to_keep: int | None, kept: int
) -> None:
    text = byte_text()
    text.tokenizer._bos_id = 7
    async with within(door := FakeDoor("a"), text) as http:
        body = (await http.post(URL, json={"prompt": "a", "n_keep": asked_to_keep})).json()
    assert door.asked[0].sampling.n_keep == kept
    assert body["generation_settings"]["n_keep"] == (asked_to_keep or 0)


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("Hi<|im_end|>", [[72, 105, EOS]]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([1, "Hi", 2], [[1, 72, 105, 2]]),
        (["Hi", 2], [[72, 105, 2]]),
        (["Hi"], [[72, 105]]),
        ({"prompt_string": "Hi"}, [[72, 105]]),
        (["Hi", "Ho"], [[72, 105], [72, 111]]),
        ([[1, "Hi"], [3], "Ho", {"prompt_string": "x"}], [[1, 72, 105], [3], [72, 111], [120]]),
    ],
)
async def test_forms_of_a_prompt(within: Connect, prompt: Any, ids: list[list[int]]) -> None:
    body = await asked(within, door := FakeDoor("a"), prompt=prompt)
    assert [request.prompt for request in door.asked] == ids
    bodies = body if isinstance(body, list) else [body]
    assert [each["index"] for each in bodies] == list(range(len(ids)))
    assert isinstance(body, list) == (len(ids) > 1)


async def test_bos_goes_before_a_text_only(within: Connect) -> None:
    text = byte_text()
    text.tokenizer._bos_id = 7
    for prompt, ids in (("a", [7, 97]), ([97], [97]), ([97, "a"], [97, 97]), (["a", 7], [7, 97, 7])):
        async with within(door := FakeDoor("a"), text) as http:
            await http.post(URL, json={"prompt": prompt})
        assert door.asked[0].prompt == ids


async def test_several_answers_to_several_prompts(within: Connect) -> None:
    body = await asked(within, door := FakeDoor("ab"), prompt=["Hi", "Ho"], n_cmpl=2)
    assert [(each["index"], each["prompt"]) for each in body] == [(0, "Hi"), (1, "Hi"), (2, "Ho"), (3, "Ho")]
    assert [(each.prompt_index, each.choice_index) for each in door.asked] == [(0, 0), (0, 1), (1, 0), (1, 1)]


async def test_tokens_and_their_probabilities(within: Connect) -> None:
    body = await asked(within, FakeDoor("é"), return_tokens=True, n_probs=1)
    assert body["tokens"] == [*"é".encode(), EOS]
    rows = body["completion_probabilities"]
    top = [{"id": 65, "token": "A", "bytes": [65], "logprob": -0.5}]
    assert rows[0] == {"id": 0xC3, "token": "", "bytes": [0xC3], "logprob": -0xC3 / 64, "top_logprobs": top}
    assert [row["id"] for row in rows] == body["tokens"]


async def test_logprobs_is_another_name_of_n_probs(within: Connect) -> None:
    body = await asked(within, FakeDoor("a"), logprobs=2)
    assert len(body["completion_probabilities"][0]["top_logprobs"]) == 2
    body = await asked(within, FakeDoor("a"), logprobs=2, n_probs=0)
    assert "completion_probabilities" not in body


async def test_wanted_fields(within: Connect) -> None:
    fields = ["content", "generation_settings/n_predict", "timings/none", "content/x", "no"]
    body = await asked(within, FakeDoor("ab"), n_predict=9, response_fields=fields)
    assert body == {"content": "ab", "generation_settings/n_predict": 9}


async def test_a_stream(within: Connect) -> None:
    *chunks, last = await streamed(within, FakeDoor("né\n"), n_probs=1, timings_per_token=True)
    assert [each["content"] for each in chunks] == ["n", "é", "\n", ""]
    assert [each["tokens"] for each in chunks] == [[110], [0xC3, 0xA9], [10], [EOS]]
    assert [len(each["completion_probabilities"]) for each in chunks] == [1, 2, 1, 1]
    assert [each["tokens_predicted"] for each in chunks] == [1, 3, 4, 5]
    assert not any(each["stop"] for each in chunks)
    assert all("timings" in each for each in chunks)
    assert (last["content"], last["tokens"], last["stop"], last["stop_type"]) == ("", [], True, "eos")
    assert (last["has_new_line"], last["tokens_predicted"]) == (True, 5)
    assert "preempt" in last


async def test_the_streams_of_several_prompts_are_told_apart(within: Connect) -> None:
    chunks = await streamed(within, FakeDoor("ab"), prompt=["Hi", [1, 2, 3]])
    for index, prompt in ((0, "Hi"), (1, "\1\2\3")):
        own = [each for each in chunks if each["index"] == index]
        assert "".join(each["content"] for each in own) == "ab"
        assert [each["stop"] for each in own] == [False, False, False, True]
        assert own[-1]["prompt"] == prompt


async def test_the_slot_is_told_once_the_engine_has_told_it(within: Connect) -> None:
    async with within(door := FakeDoor("ab", paced=True)) as http:
        asking = asyncio.create_task(http.post(URL, json={"prompt": "Hi", "stream": True}))
        await until(lambda: door.open)
        door.view = View([SlotView(0), SlotView(3, 0, "decode", 2, 3)])
        while door.open:
            door.step()
        told = [json.loads(each.removeprefix("data: ")) for each in frames((await asking).text)]
    assert {each["id_slot"] for each in told} == {3}


async def test_notices_of_a_stream(within: Connect) -> None:
    async with within(door := FakeDoor("ab", paced=True)) as http:
        fields = {"prompt": ["Hi", "Ho"], "stream": True, "notices": "chunks"}
        asking = asyncio.create_task(http.post(URL, json=fields))
        await until(lambda: len(door.open) == 2)
        for act in (park(0), park(1), resume(1), resume(0)):
            act(door)
        while door.open:
            door.step()
        text = (await asking).text
    assert comments(text) == [": preempted", ": preempted 1", ": resumed 1", ": resumed"]
    first = json.loads(frames(text)[1].removeprefix("data: "))
    assert first["parkway"] == {"state": "preempted", "ahead": 2, "waited_ms": 0, "index": 0}
    assert (first["content"], first["stop"]) == ("", False)


async def test_a_stream_that_fails(within: Connect) -> None:
    async with within(door := FakeDoor("abc", paced=True)) as http:
        asking = asyncio.create_task(http.post(URL, json={"prompt": "Hi", "stream": True}))
        await until(lambda: door.open)
        door.step()
        door.die()
        text = (await asking).text
    error = {"code": 500, "message": "the engine process was killed by SIGKILL", "type": "server_error", "param": None}
    assert json.loads(frames(text)[-1].removeprefix("data: ")) == {"error": error}


async def test_a_client_that_leaves_frees_the_slot(live: Connect) -> None:
    async with live(door := FakeDoor("x" * 200, seconds=0.005)) as http:
        async with http.stream("POST", URL, json={"prompt": ["Hi", "Ho"], "stream": True}) as answer:
            reading = Frames(answer)
            await reading.take(3)
        await until(lambda: sorted(door.cancelled) == [0, 1])
        assert not door.open


async def test_one_that_does_not_stream_too(live: Connect) -> None:
    async with live(door := FakeDoor("x" * 200, paced=True)) as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.post(URL, json={"prompt": "Hi"}, timeout=0.2)
        await until(lambda: door.cancelled == [0])
