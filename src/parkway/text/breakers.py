"""Texts at which a repetition is taken to end, as tokens: each that holds one, and runs of tokens that write one."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from parkway.text.tokenizer import Tokenizer

MOST_BYTES = 40
"""Of a text: tokens are looked through for each beginning of it."""

Runs = tuple[tuple[int, ...], ...]


def breakers_of(texts: Iterable[str], tokenizer: Tokenizer) -> Runs:
    """Of all texts, none twice."""
    return tuple(dict.fromkeys(run for text in texts for run in _runs(text, tokenizer)))


@lru_cache(maxsize=64)
def _runs(text: str, tokenizer: Tokenizer) -> Runs:
    """The tokens that hold the text; those that end with its beginning, with the tokens of the rest behind."""
    wanted, pieces = text.encode(), _pieces(tokenizer)
    found: list[tuple[int, ...]] = [(token,) for token, piece in enumerate(pieces) if wanted in piece]
    for begun, rest in _cuts(wanted):
        tail, ending = tokenizer.encode_plain(rest), _by_end(tokenizer)[begun[-1]]
        found += [(token, *tail) for token in ending if pieces[token].endswith(begun) and wanted not in pieces[token]]
    return tuple(found)


def _cuts(wanted: bytes) -> Iterator[tuple[bytes, str]]:
    """In two, where a character ends."""
    for at in range(1, len(wanted)):
        rest = wanted[at:].decode(errors="ignore")
        if rest.encode() == wanted[at:]:
            yield wanted[:at], rest


@lru_cache(maxsize=2)
def _by_end(tokenizer: Tokenizer) -> Sequence[Sequence[int]]:
    """Tokens by the last byte of what they stand for."""
    found: list[list[int]] = [[] for _ in range(256)]
    for token, piece in enumerate(_pieces(tokenizer)):
        if piece:
            found[piece[-1]].append(token)
    return found


@lru_cache(maxsize=2)
def _pieces(tokenizer: Tokenizer) -> Sequence[bytes]:
    return [tokenizer.piece_bytes(token) for token in range(tokenizer.vocab_size)]
