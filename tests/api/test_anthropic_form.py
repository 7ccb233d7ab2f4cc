"""Whatever an answer's parts are and however they are cut, its stream amounts to its whole message."""

import json
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from parkway.api import anthropic_form
from parkway.api.anthropic_form import Manner, MessageForm
from parkway.api.choice import Delta
from parkway.request import Preempt
from parkway.text.parts import Part
from tests.api.anthropic_chats import assembled, events
from tests.api.drawn_parts import answers


def form() -> MessageForm:
    choice = SimpleNamespace(stop_string=None, answer_tokens=3)
    answer: Any = SimpleNamespace(
        choices=[choice],
        seed=5,
        prompt_tokens=4,
        cached_tokens=1,
        answer_tokens=3,
        reasoning_tokens=0,
        preempt=Preempt(),
    )
    return MessageForm(Manner(model="m", request_id="r", max_tokens=9, notices="comments"), answer)


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    del message["id"]
    for block in message["content"]:
        block.pop("id", None)
    return message


@given(parts=answers(), each=st.integers(1, 4))
def test_a_stream_amounts_to_the_whole_message(parts: list[Part], each: int) -> None:
    shares = [parts[at : at + each] for at in range(0, len(parts), each)] or [[]]
    deltas = [Delta(0, "", [], None, None, share) for share in shares]
    deltas[-1] = deltas[-1]._replace(finish_reason="stop")
    one = form()
    stream = one.opening() + b"".join(map(one.frames, deltas)) + one.closing()
    whole = json.loads(form().body(deltas))
    assert without_ids(assembled(events(stream.decode()))) == without_ids(whole)
    kinds = [block["type"] for block in whole["content"]]
    assert all(a != b or a == "tool_use" for a, b in pairwise(kinds))
    said = "".join(part.text for part in parts if part.kind == "content")
    assert "".join(block["text"] for block in whole["content"] if block["type"] == "text") == said


def test_arguments_that_were_cut_are_told_as_far_as_they_are_whole() -> None:
    for text, told in [("", {}), ("{", {}), ('{"a": 1, "b": "c', {"a": 1}), ('{"a": [1, 2', {"a": [1, 2]}), ("[]", {})]:
        assert anthropic_form._object(text) == told
