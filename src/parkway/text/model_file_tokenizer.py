"""A tokenizer out of a folder that has no tokenizer.json: its tokenizer.model as SentencePiece runs it."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from sentencepiece import SentencePieceProcessor

from parkway.errors import BadFile
from parkway.text.hugging_face_tokenizer import MOST_TOKENS, checked_id, named_token, vocabulary_size
from parkway.text.marks import split_at
from parkway.text.sentence_piece import byte_of, spaced
from parkway.text.tokenizer import Tokenizer, not_unicode, stop_ids

# Fields of a file may come again, and the last one holds: this says that no space is put in front of a text.
_NO_PREFIX = b"\x1a\x02\x18\x00"


class _Mark(NamedTuple):
    """A token that the folder adds to the file's, and whether white space before and behind it is no text."""

    id: int
    special: bool
    lstrip: bool = False
    rstrip: bool = False


class ModelFileTokenizer(Tokenizer):
    """No plain text becomes a control token. Ids that the model has and the files don't have no text.

    A space stands in front of each text between special tokens, where the file has one in front of texts; of the
    first alone where the folder's `legacy` is false.
    """

    def __init__(self, metadata: Mapping[str, Any], path: object) -> None:
        source: bytes = metadata["tokenizer.huggingface.model"]
        settings: Mapping[str, Any] = metadata["tokenizer.huggingface.config"]
        self._model = _loaded(source, path)
        self._behind = self._model if settings.get("legacy", True) else _loaded(source + _NO_PREFIX, path)
        own = {self._model.id_to_piece(i): _Mark(i, True) for i in range(len(self._model)) if _hidden(self._model, i)}
        added = _added(metadata, path)
        self._all = own | added
        self._pieces = _pieces(self._model, self._all, vocabulary_size(metadata, path))
        self.bos_token, bos_id = self._settled("bos_token", settings, self._model.bos_id(), path)
        self.eos_token, eos_id = self._settled("eos_token", settings, self._model.eos_id(), path)
        named = [checked_id(i, len(self._pieces), path) for i in metadata["tokenizer.huggingface.eos_token_id"]]
        self.stop_ids = stop_ids({text: mark.id for text, mark in self._all.items()}, [eos_id, *named])
        self.special_ids = self.stop_ids | {mark.id for mark in self._all.values() if mark.special}
        self._bos_id = bos_id if settings.get("add_bos_token", True) else None
        self._end_id = eos_id if settings.get("add_eos_token", False) else None
        self._marks = split_at(self._all)
        self._own_marks = split_at(text for text, mark in added.items() if mark.id not in self.special_ids)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], path: object) -> "ModelFileTokenizer":
        """Raises BadFile naming what is wrong and `path`."""
        if metadata["tokenizer.huggingface.model"] is None:
            raise BadFile(path, "there is neither tokenizer.json nor tokenizer.model")
        return cls(metadata, path)

    def encode(self, text: str) -> list[int]:
        return self._encode(text, self._marks)

    def encode_plain(self, text: str) -> list[int]:
        return self._encode(text, self._own_marks)

    def _encode(self, text: str, marks: re.Pattern[str] | None) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise not_unicode() from None
        parts = marks.split(text) if marks else [text]
        ids: list[int] = []
        for i, part in enumerate(parts):  # the odd ones are marks
            if i % 2:
                ids.append(self._all[part].id)
                continue
            if i and self._all[parts[i - 1]].rstrip:
                part = part.lstrip()
            if i + 1 < len(parts) and self._all[parts[i + 1]].lstrip:
                part = part.rstrip()
            ids += (self._behind if i else self._model).encode(part)
        return ids

    def _settled(self, name: str, settings: Mapping[str, Any], file_id: int, path: object) -> tuple[str, int | None]:
        """A token that tokenizer_config.json names, else the file's, with its id; ("", None) where there is none."""
        text = named_token(settings, name, path) or (self._model.id_to_piece(file_id) if file_id >= 0 else "")
        if text in self._all:
            return text, self._all[text].id
        found = self._model.piece_to_id(text) if text else self._model.unk_id()
        return (text, found) if found != self._model.unk_id() else ("", None)


def _loaded(source: bytes, path: object) -> SentencePieceProcessor:
    try:
        return SentencePieceProcessor(model_proto=source)
    except Exception as error:  # the library raises nothing more precise
        raise BadFile(path, f"tokenizer.model can't be read: {error}") from error


def _hidden(model: SentencePieceProcessor, token_id: int) -> bool:
    return bool(model.is_control(token_id) or model.is_unknown(token_id))


def _added(metadata: Mapping[str, Any], path: object) -> dict[str, _Mark]:
    """What added_tokens.json has, and tokenizer_config.json, which says more of each."""
    found = {text: _Mark(_id(text, i, path), False) for text, i in metadata["tokenizer.huggingface.added"].items()}
    said = metadata["tokenizer.huggingface.config"].get("added_tokens_decoder", {})
    for number, each in said.items() if isinstance(said, dict) else ():
        text = each.get("content") if isinstance(each, dict) else None
        if not isinstance(text, str):
            raise BadFile(path, f"tokenizer_config.json: added_tokens_decoder.{number} has no content")
        flags = (bool(each.get(flag, False)) for flag in ("special", "lstrip", "rstrip"))
        found[text] = _Mark(_id(text, int(number) if number.isdecimal() else number, path), *flags)
    return found


def _id(text: str, token_id: Any, path: object) -> int:
    if not isinstance(token_id, int) or not 0 <= token_id < MOST_TOKENS:
        raise BadFile(path, f"the added token {text!r} has the id {token_id!r}")
    return token_id


def _pieces(model: SentencePieceProcessor, marks: Mapping[str, _Mark], vocabulary: int) -> list[bytes]:
    """What each id stands for."""
    most = max([len(model), vocabulary, *(mark.id + 1 for mark in marks.values())])
    pieces = [_piece(model, i) for i in range(len(model))] + [b""] * (most - len(model))
    for text, mark in marks.items():
        pieces[mark.id] = text.encode(errors="replace")
    return pieces


def _piece(model: SentencePieceProcessor, token_id: int) -> bytes:
    text: str = model.id_to_piece(token_id)
    if model.is_unused(token_id):
        return b""
    return byte_of(text) or b"" if model.is_byte(token_id) else spaced(text)
