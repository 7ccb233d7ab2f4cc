"""A tokenizer out of a Hugging Face folder: its tokenizer.json as the `tokenizers` library runs it."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import tokenizers

from parkway.errors import BadFile, Unsupported
from parkway.text.sentence_piece import byte_of, spaced
from parkway.text.tokenizer import Tokenizer, bytes_of, encoded, stop_ids

MOST_TOKENS = 1 << 24


class HuggingFaceTokenizer(Tokenizer):
    """Byte-level or SentencePiece-like. Ids that the model has and tokenizer.json doesn't have no text."""

    def __init__(self, metadata: Mapping[str, Any], path: object) -> None:
        self._source = metadata["tokenizer.huggingface.json"]
        self._model = _loaded(self._source, path)
        settings: Mapping[str, Any] = metadata["tokenizer.huggingface.config"]
        added = {token.content: i for i, token in self._model.get_added_tokens_decoder().items()}
        special = {i for i, token in self._model.get_added_tokens_decoder().items() if token.special}
        self._pieces = _pieces(self._model, _decoders(self._model, path), vocabulary_size(metadata, path))
        self.bos_token, self.eos_token = (named_token(settings, name, path) for name in ("bos_token", "eos_token"))
        eos_id = self._model.token_to_id(self.eos_token)
        named = [checked_id(i, len(self._pieces), path) for i in metadata["tokenizer.huggingface.eos_token_id"]]
        self.stop_ids = stop_ids(added, [eos_id, *named])
        self.special_ids = self.stop_ids | special
        self._bos_id = self._bos(settings)
        self._end_id = next((i for i in self._model.encode("a").ids[-1:] if i in special), None)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], path: object) -> "HuggingFaceTokenizer":
        """Raises Unsupported for a tokenizer of another kind, or BadFile naming what is wrong; both name `path`."""
        return cls(metadata, path)

    def encode(self, text: str) -> list[int]:
        return encoded(self._model, text)

    def encode_plain(self, text: str) -> list[int]:
        return encoded(self._blind, text)

    @cached_property
    def _blind(self) -> tokenizers.Tokenizer:
        """The same, taking special tokens for plain text."""
        model = tokenizers.Tokenizer.from_str(self._source)
        model.encode_special_tokens = True
        return model

    def _bos(self, settings: Mapping[str, Any]) -> int | None:
        """BOS, if tokenizer_config.json asks for it or, where that doesn't say, tokenizer.json puts it in front."""
        put_in_front: list[int | None] = [*self._model.encode("").ids[:1]]
        bos_id = self._model.token_to_id(self.bos_token) if self.bos_token else next(iter(put_in_front), None)
        asked = settings.get("add_bos_token")
        return bos_id if (put_in_front == [bos_id] if asked is None else asked) else None


def _loaded(source: str, path: object) -> tokenizers.Tokenizer:
    try:
        model = tokenizers.Tokenizer.from_str(source)
    except Exception as error:  # the library raises nothing more precise
        raise BadFile(path, f"tokenizer.json can't be read: {error}") from error
    model.no_truncation()
    model.no_padding()
    return model


def _decoders(model: tokenizers.Tokenizer, path: object) -> set[str]:
    """How tokens become text: from GPT-2's alphabet of bytes, or with ▁ for a space and perhaps <0x0A> for a byte."""
    decoder = json.loads(model.decoder.__getstate__()) if model.decoder else {}
    kinds = {each["type"] for each in (decoder, *decoder.get("decoders", ())) if "type" in each}
    if not kinds & {"ByteLevel", "ByteFallback", "Metaspace"}:
        raise Unsupported(f"{path}: a tokenizer.json with the decoder {decoder.get('type')!r} is not supported")
    return kinds


def _pieces(model: tokenizers.Tokenizer, decoders: set[str], vocabulary: int) -> list[bytes]:
    """What each id stands for."""
    ids, added = model.get_vocab(), model.get_added_tokens_decoder()
    pieces = [b""] * max(vocabulary, max(ids.values(), default=-1) + 1)
    for token, i in ids.items():
        if "ByteLevel" in decoders:
            pieces[i] = added[i].content.encode(errors="replace") if i in added else bytes_of(token)
        else:
            byte = byte_of(token) if "ByteFallback" in decoders else None
            pieces[i] = spaced(token) if byte is None else byte
    return pieces


def vocabulary_size(metadata: Mapping[str, Any], path: object) -> int:
    size = metadata.get(f"{metadata.get('general.architecture')}.vocab_size", 0)
    if not isinstance(size, int) or not 0 <= size < MOST_TOKENS:
        raise BadFile(path, f"vocab_size (config.json) is {size!r}, not a number of tokens")
    return size


def named_token(settings: Mapping[str, Any], name: str, path: object) -> str:
    """The text of a token that tokenizer_config.json names, as a string or with its flags; "" where it names none."""
    said = settings.get(name)
    text = said.get("content") if isinstance(said, dict) else said
    if not isinstance(text, str | None):
        raise BadFile(path, f"tokenizer_config.json: {name} must be a text, not {type(text).__name__}")
    return text or ""


def checked_id(token_id: Any, tokens: int, path: object) -> int:
    if not isinstance(token_id, int) or not 0 <= token_id < tokens:
        raise BadFile(path, f"eos_token_id is {token_id!r}, but there are {tokens} tokens")
    return token_id
