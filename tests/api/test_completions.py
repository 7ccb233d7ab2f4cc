"""Completions: prompts of every form, echo and log-probabilities as evaluation harnesses read them."""

import asyncio
import json
from typing import Any

import pytest

from parkway.request import Output
from tests.api.conftest import Connect
from tests.api.fake import FakeDoor, scored

URL = "/v1/completions"


async def post(within: Connect, door: FakeDoor, **body: Any) -> Any:
    async with within(door) as http:
        answer = await http.post(URL, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("ab", [b"ab"]),
        ([97, 98], [b"ab"]),
        (["ab", "c"], [b"ab", b"c"]),
        ([[97, 98], [99]], [b"ab", b"c"]),
        (["ab", [99]], [b"ab", b"c"]),
    ],
)
async def test_prompts(within: Connect, prompt: Any, expected: list[bytes]) -> None:
    door = FakeDoor("xyz")
    answer = await post(within, door, prompt=prompt, n=2, echo=True, seed=1)
    texts = [text.decode() + "xyz" for text in expected for _ in range(2)]
    assert [(c["index"], c["text"]) for c in answer["choices"]] == list(enumerate(texts))
    assert [(bytes(r.prompt), r.prompt_index, r.choice_index) for r in door.asked] == [
        (text, i, j) for i, text in enumerate(expected) for j in range(2)
    ]
    assert answer["usage"]["prompt_tokens"] == sum(map(len, expected))


async def test_max_tokens_is_16_unless_told(within: Connect) -> None:
    answer = await post(within, FakeDoor("x" * 40), prompt="ab")
    assert answer["choices"][0]["text"] == "x" * 16
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_echo_with_logprobs(within: Connect) -> None:
    answer = await post(within, FakeDoor("xyz"), prompt="Aé", echo=True, logprobs=1, max_tokens=1)
    [choice] = answer["choices"]
    assert choice["text"] == "Aéx"
    assert choice["logprobs"] == {
        "tokens": ["A", "bytes:\\xc3", "bytes:\\xa9", "x"],
        "token_logprobs": [None, -0xC3 / 64, -0xA9 / 64, -ord("x") / 64],
        "top_logprobs": [
            None,
            {"A": -0.5, "bytes:\\xc3": -0xC3 / 64},
            {"A": -0.5, "bytes:\\xa9": -0xA9 / 64},
            {"A": -0.5, "x": -ord("x") / 64},
        ],
        "text_offset": [0, 1, 1, 2],
    }


async def test_prompt_alone(within: Connect) -> None:
    answer = await post(within, FakeDoor(), prompt=[[65, 66], [67]], echo=True, logprobs=0, max_tokens=0)
    assert [c["text"] for c in answer["choices"]] == ["AB", "C"]
    assert [c["logprobs"]["token_logprobs"] for c in answer["choices"]] == [[None, -66 / 64], [None]]
    assert answer["choices"][0]["logprobs"]["top_logprobs"] == [None, {"B": -66 / 64}]


async def test_the_end_token_has_a_row(within: Connect) -> None:
    """lm-eval drops the last row as that of the one token it had to ask for. Without a row for the end token it
    would drop the prompt's last one."""
    answer = await post(within, FakeDoor(""), prompt="AB", echo=True, logprobs=1, max_tokens=1)
    [choice] = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("AB", "stop")
    assert choice["logprobs"]["tokens"] == ["A", "B", "<|im_end|>"]
    assert choice["logprobs"]["token_logprobs"][1:-1] == [-66 / 64]


async def test_scores_like_lm_eval(within: Connect) -> None:
    prompt = [65, 66, 67, 68]
    answer = await post(
        within, FakeDoor(), model="toy", prompt=[prompt], temperature=0, max_tokens=1, logprobs=1, seed=1234, echo=True
    )
    logprobs = answer["choices"][0]["logprobs"]
    begin = 2
    assert sum(logprobs["token_logprobs"][begin:-1]) == -67 / 64 - 68 / 64
    best = [max(top.values()) for top in logprobs["top_logprobs"][begin:-1]]
    assert best == [-0.5, -0.5]


async def test_rows_come_in_any_order(within: Connect) -> None:
    """A chat that is computed again may tell a row twice; they are kept by position."""
    async with within(door := FakeDoor(paced=True)) as http:
        posted = asyncio.create_task(
            http.post(URL, json={"prompt": "ABC", "echo": True, "logprobs": 0, "max_tokens": 1})
        )
        while not door.open:
            await asyncio.sleep(0)
        [opened] = door.open.values()
        rows = scored([65, 66, 67], 0, 0)
        opened.sink(Output(opened.request.id, prompt_logprobs=rows[2:]))
        opened.sink(Output(opened.request.id, prompt_logprobs=rows[1:]))
        opened.sink(Output(opened.request.id, [72], scored([72], 3, 0), finish_reason="length"))
        logprobs = (await posted).json()["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [None, -66 / 64, -67 / 64, -72 / 64]


async def test_streamed_echo_with_logprobs_is_the_whole_one(within: Connect) -> None:
    body = {"prompt": ["Aé", "B"], "echo": True, "logprobs": 2, "seed": 1}
    whole = await post(within, FakeDoor("xÿz"), **body)
    async with within(FakeDoor("xÿz")) as http:
        frames = (await http.post(URL, json=body | {"stream": True})).text.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    texts = ["", ""]
    rows: list[dict[str, list[Any]]] = [{}, {}]
    for frame in frames[:-2]:
        [choice] = json.loads(frame.removeprefix("data: "))["choices"]
        texts[choice["index"]] += choice["text"]
        for key, values in (choice["logprobs"] or {}).items():
            rows[choice["index"]].setdefault(key, []).extend(values)
    assert texts == [c["text"] for c in whole["choices"]]
    assert rows == [c["logprobs"] for c in whole["choices"]]
