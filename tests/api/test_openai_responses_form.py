"""Whatever an answer's parts are and however they are cut, its stream amounts to its whole response."""

import json
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parkway.api.choice import Delta
from parkway.api.logprobs import Row
from parkway.api.openai_responses_form import Manner, ResponseForm
from parkway.api.openai_responses_output import TextLogprobs
from parkway.request import Preempt, TokenLogprob
from parkway.text.parts import Part
from tests.api.drawn_parts import answers
from tests.api.fake import byte_text
from tests.api.responses_chats import assembled, events, without_ids

TOKENIZER = byte_text().tokenizer


def form(*, logprobs: bool = False) -> ResponseForm:
    answer: Any = SimpleNamespace(
        seed=5, prompt_tokens=4, cached_tokens=1, answer_tokens=3, reasoning_tokens=0, preempt=Preempt()
    )
    manner = Manner(model="m", tokenizer=TOKENIZER, logprobs=logprobs, notices="comments", request={"store": False})
    return ResponseForm(manner, answer)


def rows(text: str) -> list[Row]:
    return [Row(byte, TokenLogprob(0, byte, -byte / 64, []), shown=True) for byte in text.encode()]


@given(
    parts=answers(),
    each=st.integers(1, 4),
    logprobs=st.booleans(),
    reason=st.sampled_from(["stop", "length", "tool_calls"]),
)
def test_a_stream_amounts_to_the_whole_response(parts: list[Part], each: int, logprobs: bool, reason: str) -> None:
    shares = [parts[at : at + each] for at in range(0, len(parts), each)] or [[]]
    deltas = [Delta(0, "", rows("".join(p.text for p in share)), None, None, share) for share in shares]
    deltas[-1] = deltas[-1]._replace(finish_reason=reason)
    one = form(logprobs=logprobs)
    stream = one.opening() + b"".join(map(one.frames, deltas)) + one.closing()
    whole = json.loads(form(logprobs=logprobs).body(deltas))
    assert without_ids(assembled(events(stream.decode()))) == without_ids(whole)
    kinds = [item["type"] for item in whole["output"]]
    assert all(a != b or a == "function_call" for a, b in pairwise(kinds))
    states = [item["status"] for item in whole["output"]]
    last = "incomplete" if reason == "length" else "completed"
    assert states == ["completed"] * (len(states) - 1) + [last] * bool(states)
    said = "".join(part.text for part in parts if part.kind == "content")
    assert "".join(item["content"][0]["text"] for item in whole["output"] if item["type"] == "message") == said


@pytest.mark.parametrize("text", ["", "plain", '"quotes" \\ \n\r\n\n', "\0\x1f\x7f", "Grüße 🌍\u2028", "data: [DONE]"])
def test_a_deltas_frame_is_the_event_with_its_text(text: str) -> None:
    one = form()
    one.frames(Delta(0, "a", [], None))
    [frame] = one.frames(Delta(0, text, [], None, None, [Part("content", text)])).decode().split("\n\n")[:-1]
    name, content = frame.split("\n")
    told = json.loads(content.removeprefix("data: "))
    assert name == f"event: {told['type']}"
    assert (told["delta"], told["sequence_number"], told["logprobs"]) == (text, 3, [])
    assert list(told) == ["type", "sequence_number", "item_id", "output_index", "content_index", "delta", "logprobs"]


def tokens(told: list[dict[str, Any]]) -> str:
    return "".join(row["token"] for row in told)


def test_log_probabilities_of_a_text_are_found_among_those_that_came() -> None:
    logprobs = TextLogprobs(TOKENIZER)
    logprobs.push(rows("</think>\n\nHi<"))
    assert tokens(logprobs.of("Hi")) == "Hi"
    logprobs.push(rows("b>"))
    assert tokens(logprobs.of("<b>")) == "<b>"
    hidden = Row(256, TokenLogprob(0, 256, -1.0, []), shown=False)
    logprobs.push([*rows("x"), hidden, *rows("y"), hidden])
    assert tokens(logprobs.of("xy")) == "xy"
    logprobs.push(rows("dropped"))
    logprobs.drop()
    assert logprobs.of("y") == []


def test_log_probabilities_of_half_a_character_and_of_no_character() -> None:
    logprobs = TextLogprobs(TOKENIZER)
    logprobs.push(rows("é"))
    assert [row["bytes"] for row in logprobs.of("é")] == [[0xC3], [0xA9]]
    logprobs.push([Row(0xFF, TokenLogprob(0, 0xFF, -1.0, []), shown=True)])
    assert [row["bytes"] for row in logprobs.of("\ufffd")] == [[0xFF]]


@pytest.mark.parametrize("before", [[Part("reasoning", "so")], [Part("call", "a", 0), Part("arguments", "so", 0)]])
def test_log_probabilities_of_thoughts_and_calls_are_never_those_of_a_text(before: list[Part]) -> None:
    no_character = [Row(0xFF, TokenLogprob(0, 0xFF, -1.0, []), shown=True)]
    deltas = [
        Delta(0, "", rows("so"), None, None, before),
        Delta(0, "", no_character, "stop", None, [Part("content", "\ufffd")]),
    ]
    [part] = json.loads(form(logprobs=True).body(deltas))["output"][1]["content"]
    assert [row["bytes"] for row in part["logprobs"]] == [[0xFF]]
