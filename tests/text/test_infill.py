"""Prompts of texts with a gap: the marks that a vocabulary has, what is left out where it doesn't fit."""

from typing import Any

import pytest

from parkway.errors import BadRequest
from parkway.text.infill import Gap, Marks, marks_of, prompt_of
from parkway.text.tokenizer import Tokenizer
from tests.api.fake import byte_text

FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
PRE, SUF, MID, REP, SEP = range(257, 262)
ROOM = 1000


def tokenizer(*special: str) -> Tokenizer:
    return byte_text(special=special).tokenizer


def test_marks_by_their_spelling() -> None:
    assert marks_of(tokenizer(*FIM)) == Marks(PRE, SUF, MID, None, None)
    assert marks_of(tokenizer("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>", "<|file_sep|>")) == Marks(
        PRE, SUF, MID, REP, SEP
    )


def test_marks_that_the_file_names() -> None:
    known = tokenizer("<a>", "<b>", "<c>")
    known.fim_ids = {"pre": PRE, "suf": SUF, "mid": MID}
    assert marks_of(known) == Marks(PRE, SUF, MID, None, None)


def test_a_model_without_marks() -> None:
    with pytest.raises(BadRequest, match=r"Infill is not supported by this model: .* suffix, middle") as caught:
        marks_of(tokenizer(FIM[0]))
    assert caught.value.status == 501


def test_a_gap() -> None:
    ids = prompt_of(Gap("ab<|fim_suffix|>", "c", begin="d"), tokenizer(*FIM), ROOM)
    assert ids == [PRE, *b"ab<|fim_suffix|>", *b"d", SUF, *b"c", MID]


def test_other_files() -> None:
    gap = Gap("a", "b", files=[("x.py", "X"), ("y.py", "Y")])
    plain = prompt_of(gap, tokenizer(*FIM), ROOM)
    assert plain == [*b"X\n\nY\n\n", PRE, *b"a", SUF, *b"b", MID]
    known = prompt_of(gap, tokenizer(*FIM, "<|repo_name|>", "<|file_sep|>"), ROOM)
    files = [REP, *b"project\n", SEP, *b"x.py\nX", SEP, *b"y.py\nY", SEP, *b"file\n"]
    assert known == [*files, PRE, *b"a", SUF, *b"b", MID]


def test_bos_comes_first() -> None:
    known = tokenizer(*FIM)
    known._bos_id = 7
    assert prompt_of(Gap("a", "b", files=[("", "x")]), known, ROOM)[0] == 7


@pytest.mark.parametrize(
    ("room", "files", "prefix", "suffix"),
    [
        (ROOM, b"123\n\n", b"abcdefgh", b"ijklmnop"),
        (22, b"3\n\n", b"abcdefgh", b"ijklmnop"),
        (19, b"", b"abcdefgh", b"ijklmnop"),
        (15, b"", b"abcdefgh", b"ijkl"),
        (11, b"", b"cdefgh", b"ij"),
        (7, b"", b"fgh", b"i"),
        (3, b"", b"", b""),
        (0, b"", b"", b""),
    ],
)
def test_what_does_not_fit(room: int, files: bytes, prefix: bytes, suffix: bytes) -> None:
    ids = prompt_of(Gap("abcdefgh", "ijklmnop", files=[("n", "123")]), tokenizer(*FIM), room)
    assert ids == [*files, PRE, *prefix, SUF, *suffix, MID]


@pytest.mark.parametrize("room", range(3, 30))
def test_no_room_is_left_unused(room: int) -> None:
    for gap in (Gap("a" * 20, "b" * 20), Gap("a" * 20, "b"), Gap("a", "b" * 20, files=[("", "c" * 20)])):
        wanted: Any = len(prompt_of(gap, tokenizer(*FIM), ROOM))
        assert len(prompt_of(gap, tokenizer(*FIM), room)) == min(room, wanted)
