"""/infill: the prompt of a gap, answers in the form of /completion, models that know no gaps."""

from typing import Any

import pytest

from tests.api.conftest import Connect
from tests.api.fake import N_CTX, FakeDoor, byte_text

SPECIAL = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
PRE, SUF, MID = 257, 258, 259
GAP: dict[str, Any] = {"input_prefix": "def f(", "input_suffix": "):"}


async def test_a_gap(within: Connect) -> None:
    fields = {"prompt": "x", "input_extra": [{"text": "A"}, {"filename": "b", "text": "B"}], "n_predict": 2}
    async with within(door := FakeDoor("abc"), byte_text(special=SPECIAL)) as http:
        body = (await http.post("/infill", json=GAP | fields)).json()
    assert door.asked[0].prompt == [*b"A\n\nB\n\n", PRE, *b"def f(x", SUF, *b"):", MID]
    assert (body["content"], body["stop_type"], body["model"]) == ("ab", "limit", "nick")
    assert body["prompt"].endswith("<|fim_prefix|>def f(x<|fim_suffix|>):<|fim_middle|>")


async def test_a_stream(within: Connect) -> None:
    async with within(FakeDoor("ab"), byte_text(special=SPECIAL)) as http:
        text = (await http.post("/infill", json=GAP | {"stream": True})).text
    assert text.count('"stop":false') == 3
    assert text.count('"stop":true') == 1


@pytest.mark.parametrize(("limit", "prompt"), [(None, N_CTX * 3 // 4), (10, N_CTX - 10), (1000, N_CTX // 2)])
async def test_too_much_is_cut_so_that_the_answer_has_room(within: Connect, limit: int | None, prompt: int) -> None:
    fields = {"input_prefix": "a" * 1000, "n_predict": limit}
    async with within(door := FakeDoor("abc"), byte_text(special=SPECIAL)) as http:
        answer = await http.post("/infill", json=GAP | fields)
    assert answer.status_code == 200, answer.text
    assert len(door.asked[0].prompt) == prompt


async def test_what_editors_always_ask_for(within: Connect) -> None:
    fields = {"samplers": ["top_k", "top_p", "infill"], "top_k": 40, "top_p": 0.9, "t_max_predict_ms": 500}
    async with within(door := FakeDoor("abc"), byte_text(special=SPECIAL)) as http:
        answer = await http.post("/infill", json=GAP | fields)
    assert answer.status_code == 200, answer.text
    assert (door.asked[0].sampling.top_k, door.asked[0].sampling.top_p) == (40, 0.9)


async def test_a_model_that_knows_no_gaps(within: Connect) -> None:
    async with within(door := FakeDoor("abc")) as http:
        answer = await http.post("/infill", json=GAP)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (501, 501, "not_supported_error")
    assert error["message"].startswith("Infill is not supported by this model")
    assert not door.asked


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input_prefix": None}, "input_prefix"),
        ({"input_suffix": 5}, "input_suffix"),
        ({"input_extra": [{"filename": "x"}]}, "input_extra.0.text"),
        ({"prompt": [1]}, "prompt"),
        ({"samplers": ["top_k", "xyz"]}, "samplers"),
    ],
)
async def test_refused(within: Connect, fields: dict[str, Any], param: str) -> None:
    async with within(FakeDoor("abc"), byte_text(special=SPECIAL)) as http:
        answer = await http.post("/infill", json=GAP | fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
