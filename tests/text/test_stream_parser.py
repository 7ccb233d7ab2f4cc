"""Streams against whole strings: however an answer is split into tokens, the same text comes out."""

from typing import Any

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

from parkway.text import TextStream, Tokenizer
from parkway.text.gguf_tokenizer import GgufTokenizer

from .conftest import byte_characters

CHARACTERS = byte_characters()

answers = st.lists(st.sampled_from([b"a", b"b", b"ab", b"ba", b"\xc3", b"\xa9", b"\xf0\x9f", b"\x99\x82", b"aab\xc3"]))
stops = st.lists(st.text("abé", min_size=1, max_size=4), max_size=3).map(tuple)


def tokenizer_of(pieces: list[bytes]) -> Tokenizer:
    """Token i is the i-th piece; the last token is a control token."""
    return GgufTokenizer.from_metadata(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": [*("".join(CHARACTERS[byte] for byte in piece) for piece in pieces), "<s>"],
            "tokenizer.ggml.token_type": [1] * len(pieces) + [3],
            "tokenizer.ggml.merges": [],
        }
    )


def streamed(pieces: list[bytes], stop: tuple[str, ...]) -> tuple[list[str], TextStream]:
    """What each token brought and, last, what was held; and the stream after it all."""
    stream = TextStream(tokenizer_of(pieces), stop)
    texts = [stream.push(token_id) for token_id in range(len(pieces))]
    return [*texts, stream.finish()], stream


def whole(pieces: list[bytes], stop: tuple[str, ...]) -> tuple[str, str | None]:
    """The specification: decode everything, cut where the earliest stop string begins, the shortest if several do."""
    text = b"".join(pieces).decode(errors="replace")
    cut, _, found = min(((text.index(s), len(s), s) for s in stop if s in text), default=(len(text), 0, None))
    return text[:cut], found


@given(pieces=st.lists(st.binary(max_size=5)))
def test_streams_what_whole_decoding_gives(pieces: list[bytes]) -> None:
    texts, stream = streamed(pieces, ())
    assert "".join(texts) == b"".join(pieces).decode(errors="replace")
    assert not stream.stopped


@given(text=st.text(max_size=8), data=st.data())
def test_valid_text_is_never_shown_in_halves(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)))))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    texts, _ = streamed(pieces, ())
    for i in range(len(texts)):
        assert text.startswith("".join(texts[:i]))
    assert texts[-1] == ""


@given(pieces=answers, stop=stops)
def test_stops_as_on_the_whole_string(pieces: list[bytes], stop: tuple[str, ...]) -> None:
    texts, stream = streamed(pieces, stop)
    assert ("".join(texts), stream.stop_string) == whole(pieces, stop)
    assert stream.stopped == (stream.stop_string is not None)


@given(pieces=answers, stop=stops)
def test_neither_leaks_a_stop_string_nor_holds_too_much(pieces: list[bytes], stop: tuple[str, ...]) -> None:
    stream, shown = TextStream(tokenizer_of(pieces), stop), ""
    expected, _ = whole(pieces, stop)
    longest = max(map(len, stop), default=1)
    for i in range(len(pieces)):
        shown += stream.push(i)
        assert expected.startswith(shown)
        decodable = b"".join(pieces[: i + 1]).decode(errors="replace").removesuffix("\ufffd")
        assert stream.stopped or len(decodable) - len(shown) < longest


@pytest.mark.parametrize("stop", [(), ("ab",)])
def test_the_properties_catch_a_stream_that_looks_at_one_token_at_a_time(stop: tuple[str, ...]) -> None:
    def wrong(pieces: list[bytes]) -> str:
        return "".join(whole([piece], stop)[0] for piece in pieces)

    find(answers, lambda pieces: wrong(pieces) != whole(pieces, stop)[0])  # raises if there is no such answer


def test_an_emoji_in_four_tokens_comes_whole() -> None:
    texts, _ = streamed([bytes([byte]) for byte in "🙂".encode()], ())
    assert texts == ["", "", "", "🙂", ""]


def test_a_character_that_never_ends_becomes_a_replacement_at_the_end() -> None:
    texts, _ = streamed([b"a\xf0\x9f"], ())
    assert texts == ["a", "\ufffd"]


def test_a_stop_string_over_three_tokens() -> None:
    texts, stream = streamed([b"yes\n", b"Us", b"er:", b" more"], ("\nUser:",))
    assert texts == ["yes", "", "", "", ""]
    assert stream.stopped


def test_what_only_looked_like_a_stop_string_comes_after_all() -> None:
    texts, stream = streamed([b"yes\n", b"Us", b"ed", b"\n"], ("\nUser:",))
    assert texts == ["yes", "", "\nUsed", "", "\n"]
    assert not stream.stopped


def test_a_longer_stop_string_that_began_earlier_is_waited_for() -> None:
    assert streamed([b"xabc", b"d"], ("bc", "abcd"))[0] == ["x", "", ""]
    assert streamed([b"xabc", b"e"], ("bc", "abcd"))[0] == ["x", "a", ""]
    texts, stream = streamed([b"xabc"], ("bc", "abcd"))
    assert texts == ["x", "a"]
    assert stream.stopped


def test_special_tokens_have_no_text_and_do_not_break_a_character(toy: dict[str, Any]) -> None:
    tokenizer = GgufTokenizer.from_metadata(toy)
    stream = TextStream(tokenizer)
    ids = [0xC3, tokenizer.encode("<|im_end|>")[0], 0xA9, tokenizer.encode("<think>")[0]]
    assert [stream.push(i) for i in ids] == ["", "", "é", "<think>"]


def test_special_tokens_that_are_not_hidden_have_text_and_may_hold_a_stop(toy: dict[str, Any]) -> None:
    tokenizer = GgufTokenizer.from_metadata(toy)
    end, shown = tokenizer.encode("<|im_end|>")[0], tokenizer.encode("<s>")[0]
    stream = TextStream(tokenizer, hidden=tokenizer.special_ids - {shown})
    assert [stream.push(i) for i in (0xC3, shown, end, ord("a"))] == ["", "\ufffd<s>", "", "a"]
    stream = TextStream(tokenizer, ("s>a",), tokenizer.special_ids - {shown})
    assert [stream.push(i) for i in (ord("a"), shown, end, ord("a"))] == ["a", "<", "", ""]
    assert stream.stopped


@given(text=st.text(), stop=st.text(min_size=1, max_size=3))
def test_streams_the_default_models_tokens(tokenizer: Tokenizer, text: str, stop: str) -> None:
    ids = tokenizer.encode(text + stop + text)
    stream = TextStream(tokenizer, (stop,))
    shown = "".join(map(stream.push, ids)) + stream.finish()
    assert shown == whole([tokenizer.piece_bytes(i) for i in ids], (stop,))[0]
