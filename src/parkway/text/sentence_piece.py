"""SentencePiece's merges out of tokens and scores: of all neighbours that together are a token, the best score first.

Knows no special tokens and no file format.
"""

import struct
from collections.abc import Callable, Sequence

from gguf import TokenType
from sentencepiece import SentencePieceProcessor

from parkway.text.tokenizer import not_unicode

_SPACE = "\u2581"
_UNKNOWN = "\U0010ffff"  # of Unicode, but no character
_BPE = 2
# A user's own tokens have been cut out of the text, but for those that are written with ▁: merges make these.
_IN_MODEL = {kind: kind for kind in (TokenType.NORMAL, TokenType.UNUSED, TokenType.BYTE)}
_IN_MODEL[TokenType.USER_DEFINED] = TokenType.NORMAL
_IN_TEXT = _IN_MODEL.keys() - {TokenType.BYTE}
_SHORT = [bytes((value,)) for value in range(128)]
_BYTE_TEXTS = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}

Words = Callable[[str], list[int]]
"""From a text without special tokens to token ids."""


def piece_of(token: str, kind: int) -> bytes:
    """What a token stands for: a byte, or text in which a space is written as ▁; unused ones stand for nothing."""
    if kind == TokenType.UNUSED:
        return b""
    if kind == TokenType.BYTE:
        return _BYTE_TEXTS.get(token, b"")
    return spaced(token) if kind == TokenType.NORMAL else token.encode(errors="replace")


def spaced(token: str) -> bytes:
    return token.replace(_SPACE, " ").encode(errors="replace")


def byte_of(token: str) -> bytes | None:
    """The byte that `token` is the name of, <0x00> to <0xFF>."""
    return _BYTE_TEXTS.get(token)


def sentence_pieces(
    tokens: Sequence[str], scores: Sequence[float], types: Sequence[int], *, prefix: bool, unknown_id: int | None
) -> Words:
    """How a text becomes token ids; `prefix`: as if a space stood in front of it.

    What has no token becomes the tokens of its bytes, or without those `unknown_id` (None: it is left out). Control
    tokens and bytes are never read out of text.
    """
    ids = {token: i for i, token in enumerate(tokens) if types[i] in _IN_TEXT and _is_piece(token)}
    byte_ids = {token: i for i, token in enumerate(tokens) if types[i] == TokenType.BYTE and token in _BYTE_TEXTS}
    falls_back = len(byte_ids) == len(_BYTE_TEXTS)
    kept = [*ids.items(), *(byte_ids.items() if falls_back else ())]
    pieces = [
        _piece(_UNKNOWN, 0.0, TokenType.UNKNOWN),
        *(_piece(token, scores[i], _IN_MODEL[types[i]]) for token, i in kept),
    ]
    model = SentencePieceProcessor(model_proto=_model(pieces, falls_back))
    known = [unknown_id, *(i for _, i in kept)]

    def words(text: str) -> list[int]:
        if not text:
            return []
        try:
            encoded = f" {text}".encode() if prefix else text.encode()
        except UnicodeEncodeError:
            raise not_unicode() from None
        return [i for each in model.encode(encoded) if (i := known[each]) is not None]

    return words


def _is_piece(token: str) -> bool:
    """Whether SentencePiece takes it."""
    return token not in ("", _UNKNOWN) and "\0" not in token


def _model(pieces: Sequence[bytes], falls_back: bool) -> bytes:
    """SentencePiece's own file: pieces, how it was trained, and no change of the text but ▁ for a space."""
    trained = _number(3, _BPE) + _number(35, falls_back)
    unchanged = _bytes(1, b"identity") + _number(3, False) + _number(4, False) + _number(5, True)
    return b"".join(pieces) + _bytes(2, trained) + _bytes(3, unchanged)


def _piece(token: str, score: float, kind: int) -> bytes:
    return _bytes(1, _bytes(1, token.encode()) + b"\x15" + struct.pack("<f", score) + _number(3, kind))


def _bytes(field: int, value: bytes) -> bytes:
    """A field of Protocol Buffers that has a length."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    return _SHORT[value] if value < 128 else bytes((value & 127 | 128,)) + _varint(value >> 7)
