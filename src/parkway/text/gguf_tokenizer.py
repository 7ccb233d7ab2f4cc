"""A tokenizer out of the metadata of a GGUF file: byte-level BPE."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers.models import BPE

from parkway.errors import BadFile, Unsupported
from parkway.text.pre_tokenizer import PreTokenizer, pre_tokenizer
from parkway.text.tokenizer import Tokenizer, bytes_of, encoded, stop_ids

# tokenizer.ggml.token_type
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
_HIDDEN = (_UNKNOWN, _CONTROL)

_FIM_KEYS = ("pre", "suf", "mid", "rep", "sep")
_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")


def _piece(token: str, kind: int) -> bytes:
    if kind == _UNUSED:
        return b""
    return bytes_of(token) if kind == _NORMAL else token.encode(errors="replace")


def _split_at(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(filter(None, texts), key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")") if longest_first else None


class _Keys:
    """The `tokenizer.ggml.*` keys of one file, checked as they are read."""

    def __init__(self, metadata: Mapping[str, Any], path: object) -> None:
        self._metadata = metadata
        self.path = path

    def get(self, name: str, kind: type, default: Any = None) -> Any:
        value = self._metadata.get(f"tokenizer.ggml.{name}", default)
        if value is None:
            raise BadFile(self.path, f"the metadata has no tokenizer.ggml.{name}")
        if not isinstance(value, kind):
            raise BadFile(self.path, f"tokenizer.ggml.{name} must be {kind.__name__}, not {type(value).__name__}")
        return value

    def items(self, name: str, kind: type, default: list[Any] | None = None) -> list[Any]:
        values: list[Any] = self.get(name, list, default)
        if not all(isinstance(value, kind) for value in values):
            raise BadFile(self.path, f"tokenizer.ggml.{name} must hold only {kind.__name__}")
        return values

    def types(self, tokens: int) -> list[int]:
        types = self.items("token_type", int, [_NORMAL] * tokens)
        if len(types) != tokens:
            raise BadFile(self.path, f"tokenizer.ggml.token_type has {len(types)} entries for {tokens} tokens")
        return types

    def token_id(self, name: str, tokens: Sequence[str]) -> int | None:
        value: int = self.get(f"{name}_token_id", int, -1)
        if value >= len(tokens):
            raise BadFile(self.path, f"tokenizer.ggml.{name}_token_id is {value}, but there are {len(tokens)} tokens")
        return value if value >= 0 else None


def _model(vocabulary: dict[str, int], words: PreTokenizer, keys: _Keys) -> tokenizers.Tokenizer:
    merges = (merge.partition(" ") for merge in keys.items("merges", str))
    try:
        bpe = BPE(vocabulary, [(left, right) for left, _, right in merges], ignore_merges=words.whole_words)
    except Exception as error:  # the library raises nothing more precise
        raise BadFile(keys.path, f"tokenizer.ggml.merges do not fit tokenizer.ggml.tokens ({error})") from error
    model = tokenizers.Tokenizer(bpe)
    model.pre_tokenizer = words.build()
    return model


class GgufTokenizer(Tokenizer):
    """Bytes that the vocabulary has no token for are left out, as llama.cpp leaves them out."""

    def __init__(self, keys: _Keys) -> None:
        tokens = keys.items("tokens", str)
        types = keys.types(len(tokens))
        ids = {token: i for i, token in enumerate(tokens)}
        words = pre_tokenizer(keys.get("pre", str, ""), keys.path)
        bos_id, eos_id = keys.token_id("bos", tokens), keys.token_id("eos", tokens)

        self.stop_ids = stop_ids(ids, [keys.token_id(end, tokens) for end in _END_KEYS])
        self.special_ids = self.stop_ids | {i for i, kind in enumerate(types) if kind in _HIDDEN}
        self.bos_token = "" if bos_id is None else tokens[bos_id]
        self.eos_token = "" if eos_id is None else tokens[eos_id]
        marks = {name: keys.token_id(f"fim_{name}", tokens) for name in _FIM_KEYS}
        self.fim_ids = {name: i for name, i in marks.items() if i is not None}
        self._bos_id = bos_id if keys.get("add_bos_token", bool, words.adds_bos) else None
        self._end_id = eos_id if keys.get("add_eos_token", bool, False) else None
        self._pieces = [_piece(token, kind) for token, kind in zip(tokens, types, strict=True)]
        own = {tokens[i]: i for i, kind in enumerate(types) if kind == _USER_DEFINED}
        self._ids = own | {tokens[i]: i for i in self.special_ids}
        self._marks = _split_at(self._ids)
        self._own_marks = _split_at(own.keys() - {tokens[i] for i in self.special_ids})
        # Without the control tokens, so that no plain text can become one.
        self._model = _model({token: i for token, i in ids.items() if types[i] not in _HIDDEN}, words, keys)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], path: object = "model file") -> "GgufTokenizer":
        """Raises Unsupported naming the tokenizer, or BadFile naming the key; both name `path`."""
        keys = _Keys(metadata, path)
        if (name := keys.get("model", str)) != "gpt2":
            raise Unsupported(
                f"{path}: the tokenizer {name!r} (tokenizer.ggml.model) is not supported, only BPE ('gpt2')"
            )
        return cls(keys)

    def encode(self, text: str) -> list[int]:
        return self._encode(text, self._marks)

    def encode_plain(self, text: str) -> list[int]:
        return self._encode(text, self._own_marks)

    def _encode(self, text: str, marks: re.Pattern[str] | None) -> list[int]:
        parts = marks.split(text) if marks else [text]
        ids: list[int] = []
        for i, part in enumerate(parts):  # the odd ones are marks
            if i % 2:
                ids.append(self._ids[part])
            elif part:
                ids.extend(encoded(self._model, part))
        return ids
