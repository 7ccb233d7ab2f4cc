"""A tokenizer out of the metadata of a GGUF file: byte-level BPE, or SentencePiece's."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tokenizers
from gguf import TokenType
from tokenizers.models import BPE

from parkway.errors import BadFile, Unsupported
from parkway.text.marks import split_at
from parkway.text.pre_tokenizer import pre_tokenizer
from parkway.text.sentence_piece import Words, piece_of, sentence_pieces
from parkway.text.tokenizer import Tokenizer, bytes_of, encoded, stop_ids

_HIDDEN = (TokenType.UNKNOWN, TokenType.CONTROL)

_WHITE = " \t\n\v\f\r"
_NEVER_STRIPS = ("<unk>", "<s>", "<|endoftext|>")

_LLAMA_DEFAULTS: Mapping[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}

_FIM_KEYS = ("pre", "suf", "mid", "rep", "sep")
_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")


class _Keys:
    """The `tokenizer.ggml.*` keys of one file, checked as they are read."""

    def __init__(self, metadata: Mapping[str, Any], path: object) -> None:
        defaults = _LLAMA_DEFAULTS if metadata.get("tokenizer.ggml.model") == "llama" else {}
        self._metadata = {f"tokenizer.ggml.{key}": value for key, value in defaults.items()} | {**metadata}
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
        types = [*self.items("token_type", int, [TokenType.NORMAL] * tokens)]
        if len(types) != tokens:
            raise BadFile(self.path, f"tokenizer.ggml.token_type has {len(types)} entries for {tokens} tokens")
        return types

    def token_id(self, name: str, tokens: Sequence[str]) -> int | None:
        value: int = self.get(f"{name}_token_id", int, -1)
        if value >= len(tokens):
            raise BadFile(self.path, f"tokenizer.ggml.{name}_token_id is {value}, but there are {len(tokens)} tokens")
        return value if value >= 0 else None

    def strips_behind_marks(self) -> bool:
        """Whether white space behind a special token is no text, which llama.cpp knows by the model's name."""
        name = str(self._metadata.get("general.name", "")).lower()
        return "phi-3" in name or "phi3" in name


@dataclass(frozen=True, slots=True)
class _Kind:
    """What tokenizer.ggml.model stands for: what each token stands for, a text without marks as ids, and whether BOS
    is in front where the file doesn't say."""

    pieces: list[bytes]
    words: Words
    adds_bos: bool


def _byte_level(tokens: Sequence[str], types: Sequence[int], keys: _Keys) -> _Kind:
    pre = pre_tokenizer(keys.get("pre", str, ""), keys.path)
    # Without the control tokens, so that no plain text can become one.
    vocabulary = {token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind not in _HIDDEN}
    merges = (merge.partition(" ") for merge in keys.items("merges", str))
    try:
        bpe = BPE(vocabulary, [(left, right) for left, _, right in merges], ignore_merges=pre.whole_words)
    except Exception as error:  # the library raises nothing more precise
        raise BadFile(keys.path, f"tokenizer.ggml.merges do not fit tokenizer.ggml.tokens ({error})") from error
    model = tokenizers.Tokenizer(bpe)
    model.pre_tokenizer = pre.build()
    pieces = [_byte_level_piece(token, kind) for token, kind in zip(tokens, types, strict=True)]
    return _Kind(pieces, partial(encoded, model), pre.adds_bos)


def _byte_level_piece(token: str, kind: int) -> bytes:
    if kind == TokenType.UNUSED:
        return b""
    return bytes_of(token) if kind == TokenType.NORMAL else token.encode(errors="replace")


def _sentence_piece(tokens: Sequence[str], types: Sequence[int], keys: _Keys) -> _Kind:
    scores = keys.items("scores", float)
    if len(scores) != len(tokens):
        raise BadFile(keys.path, f"tokenizer.ggml.scores has {len(scores)} entries for {len(tokens)} tokens")
    prefix, unknown_id = keys.get("add_space_prefix", bool, True), keys.token_id("unknown", tokens)
    words = sentence_pieces(tokens, scores, types, prefix=prefix, unknown_id=unknown_id)
    return _Kind([piece_of(token, kind) for token, kind in zip(tokens, types, strict=True)], words, True)


_KINDS = {"gpt2": _byte_level, "llama": _sentence_piece}


class GgufTokenizer(Tokenizer):
    """As llama.cpp tokenizes, but no plain text becomes a control token.

    In byte-level BPE, bytes without a token are left out. In SentencePiece, a space stands in front of each text
    between special tokens, unless the file says no.
    """

    def __init__(self, keys: _Keys, kind: Callable[[Sequence[str], Sequence[int], _Keys], _Kind]) -> None:
        tokens = keys.items("tokens", str)
        types = keys.types(len(tokens))
        bos_id, eos_id = keys.token_id("bos", tokens), keys.token_id("eos", tokens)
        ends = [keys.token_id(end, tokens) for end in _END_KEYS]
        self.stop_ids = stop_ids({token: i for i, token in enumerate(tokens)}, ends)
        for i in self.stop_ids:  # as llama.cpp takes them; in some files they are a user's own
            types[i] = TokenType.CONTROL if types[i] == TokenType.USER_DEFINED else types[i]
        self.special_ids = self.stop_ids | {i for i, kind in enumerate(types) if kind in _HIDDEN}
        self.bos_token = "" if bos_id is None else tokens[bos_id]
        self.eos_token = "" if eos_id is None else tokens[eos_id]
        marks = {name: keys.token_id(f"fim_{name}", tokens) for name in _FIM_KEYS}
        self.fim_ids = {name: i for name, i in marks.items() if i is not None}
        model = kind(tokens, types, keys)
        self._bos_id = bos_id if keys.get("add_bos_token", bool, model.adds_bos) else None
        self._end_id = eos_id if keys.get("add_eos_token", bool, False) else None
        self._pieces, self._words = model.pieces, model.words
        own = {tokens[i]: i for i, kind in enumerate(types) if kind == TokenType.USER_DEFINED}
        self._ids = own | {tokens[i]: i for i in self.special_ids}
        self._marks = split_at(self._ids)
        self._own_marks = split_at(own.keys() - {tokens[i] for i in self.special_ids})
        self._strips = self._ids.keys() - set(_NEVER_STRIPS) if keys.strips_behind_marks() else frozenset[str]()

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], path: object = "model file") -> "GgufTokenizer":
        """Raises Unsupported naming the tokenizer, or BadFile naming the key; both name `path`."""
        keys = _Keys(metadata, path)
        if (name := keys.get("model", str)) not in _KINDS:
            raise Unsupported(
                f"{path}: the tokenizer {name!r} (tokenizer.ggml.model) is not supported, "
                "only BPE ('gpt2') and SentencePiece ('llama')"
            )
        return cls(keys, _KINDS[name])

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
            elif plain := part.lstrip(_WHITE) if i and parts[i - 1] in self._strips else part:
                ids.extend(self._words(plain))
        return ids
