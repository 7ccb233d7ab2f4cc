"""One answer read token by token: the same parts however its tokens come."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from parkway.api.choice import Choice
from parkway.api.message import message_of
from parkway.api.reading import Reading
from parkway.request import Output, Request, SamplingParams
from parkway.text.dialects import dialect_named
from parkway.text.parts import Part, Tool
from tests.api.fake import EOS
from tests.api.speaking import call, ids, speaking

PARIS = call("weather", city="Paris")


class _Scripted:
    """A parser that tells every character as the kind that its case says."""

    def push(self, text: str) -> list[Part]:
        return [self._part(character) for character in text]

    def finish(self) -> list[Part]:
        return []

    def _part(self, character: str) -> Part:
        if character == "!":
            return Part("call", "f", 0)
        return Part("reasoning" if character.isupper() else "content", character)


def test_text_without_a_parser_is_content() -> None:
    request = Request(id=1, prompt=[1], sampling=SamplingParams(), seed=1)
    choice = Choice(0, request, speaking().tokenizer)
    delta = choice.take(Output(1, [104, 105]))
    assert (delta.parsed, delta.parts) == (None, [Part("content", "hi")])
    assert choice.take(Output(1, [], finish_reason="length")).parts == []


def test_stop_strings_are_cut_before_the_text_is_read() -> None:
    sampling = SamplingParams(stop=("xy",))
    request = Request(id=1, prompt=[1], sampling=sampling, seed=1)
    reading = Reading(_Scripted(), False, tells_thoughts=True, one_call=False)
    choice = Choice(0, request, speaking().tokenizer, reading=reading)
    first = choice.take(Output(1, list(b"aBx")))
    assert first.parts == [Part("content", "a"), Part("reasoning", "B")]
    last = choice.take(Output(1, list(b"yc")))
    assert (last.parts, last.finish_reason) == ([], "stop")
    assert choice.answer_tokens == 4


def test_a_call_that_was_cut_ends_by_length() -> None:
    request = Request(id=1, prompt=[1], sampling=SamplingParams(), seed=1)
    reading = Reading(_Scripted(), False, tells_thoughts=True, one_call=False)
    choice = Choice(0, request, speaking().tokenizer, reading=reading)
    assert choice.take(Output(1, list(b"!"), finish_reason="length")).finish_reason == "length"


TOOLS = (Tool("weather", "", {"type": "object"}),)


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(
        st.sampled_from(["<think>", "</think>", PARIS, "<tool_call>", "word ", "{", '"é🌍"', "\n"]), max_size=8
    ),
    cuts=st.lists(st.integers(1, 40), max_size=40),
    one_call=st.booleans(),
    thinking=st.booleans(),
)
def test_how_tokens_come_does_not_matter(pieces: list[str], cuts: list[int], one_call: bool, thinking: bool) -> None:
    text, tokens = speaking(), [*ids("".join(pieces)), EOS]

    def read(outputs: list[list[int]]) -> tuple[Any, str | None, int]:
        request = Request(id=1, prompt=[1], sampling=SamplingParams(stop=("d <",)), seed=1)
        parser = dialect_named("hermes").parser(tools=TOOLS, thinking=thinking)
        reading = Reading(parser, thinking, tells_thoughts=True, one_call=one_call)
        choice = Choice(0, request, text.tokenizer, reading=reading, hidden=frozenset([EOS]))
        parts = []
        for index, token_ids in enumerate(outputs):
            delta = choice.take(Output(1, token_ids, finish_reason="stop" if index == len(outputs) - 1 else None))
            parts += delta.parts
            if delta.finish_reason:
                return message_of(parts), delta.finish_reason, choice.answer_tokens
        raise AssertionError("it never ended")

    outputs, left = [], tokens
    for size in cuts:
        outputs.append(left[:size])
        left = left[size:]
    assert read([*filter(None, outputs), left] if left else [each for each in outputs if each]) == read([tokens])
