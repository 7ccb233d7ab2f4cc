"""Texts at which repetitions end, as tokens."""

from collections.abc import Sequence

import pytest

from parkway.text.breakers import breakers_of
from parkway.text.tokenizer import Tokenizer


class Pieces(Tokenizer):
    """Encodes by the longest piece."""

    stop_ids = special_ids = frozenset[int]()
    bos_token = eos_token = ""
    _bos_id = None

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = list(pieces)

    def encode(self, text: str) -> list[int]:
        rest, ids = text.encode(), list[int]()
        while rest:
            piece = max((each for each in self._pieces if rest.startswith(each)), key=len)
            ids.append(self._pieces.index(piece))
            rest = rest[len(piece) :]
        return ids

    encode_plain = encode


@pytest.fixture
def tokenizer() -> Pieces:
    return Pieces([b"a", b":", b"b:", b"::a", b"ab", b"x", b"xa", "é".encode(), b"\xc3", b"\xa9"])


def test_every_token_that_holds_the_text(tokenizer: Pieces) -> None:
    assert breakers_of([":"], tokenizer) == ((1,), (2,), (3,))
    assert breakers_of(["q"], tokenizer) == ()
    assert breakers_of([], tokenizer) == ()


def test_tokens_that_write_it_together(tokenizer: Pieces) -> None:
    assert breakers_of(["ab:"], tokenizer) == ((0, 2), (3, 2), (6, 2), (4, 1))


def test_no_character_is_cut(tokenizer: Pieces) -> None:
    """Half of one is no text that could be encoded."""
    assert breakers_of(["é"], tokenizer) == ((7,),)
    assert breakers_of(["xé"], tokenizer) == ((5, 7),)


def test_none_is_there_twice(tokenizer: Pieces) -> None:
    assert breakers_of([":", "b", ":"], tokenizer) == ((1,), (2,), (3,), (4,))
