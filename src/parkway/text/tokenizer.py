"""Between text and token ids, as the metadata of the model file says. Byte-level BPE; knows no model and no request."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers.models import BPE

from parkway.errors import BadFile, BadRequest, Unsupported
from parkway.text.pre_tokenizer import PreTokenizer, pre_tokenizer

# tokenizer.ggml.token_type
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
_HIDDEN = (_UNKNOWN, _CONTROL)

# Files name one end of generation, or two; the others are known by their text (llama.cpp's list).
_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_END_TEXTS = (
    *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>"),
    *("<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"),
    *("<end_of_utterance>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|fim_pad|>", "<fim-pad>", "<fim_pad>"),
    *("<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"),
)


def _byte_characters() -> dict[int, str]:
    """GPT-2 writes each byte as a printable character; this maps them back, as characters 0 to 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = sorted(set(range(256)) - set(printable))
    return {byte: chr(byte) for byte in printable} | {256 + i: chr(byte) for i, byte in enumerate(others)}


_BYTES = _byte_characters()


def _piece(token: str, kind: int) -> bytes:
    if kind == _UNUSED:
        return b""
    if kind == _NORMAL:
        try:
            return token.translate(_BYTES).encode("latin-1")
        except UnicodeEncodeError:
            pass  # not in GPT-2's alphabet, so it stands for itself
    return token.encode(errors="replace")


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


def _stop_ids(ids: Mapping[str, int], named: Iterable[int | None]) -> frozenset[int]:
    found = {ids[text] for text in _END_TEXTS if text in ids} | {i for i in named if i is not None}
    # In OpenAI's harmony format <|end|> closes a message, not the answer.
    if {"<|return|>", "<|call|>", "<|end|>"} <= ids.keys():
        found.discard(ids["<|end|>"])
    return frozenset(found)


class Tokenizer:
    """Text to token ids and back, for one model file.

    `stop_ids` end an answer. `special_ids` are those and all control tokens: text like any other to `encode_plain`,
    shown by `decode` and `piece_bytes`. Neither way of encoding adds BOS. Bytes that the vocabulary has no token for
    are left out, as llama.cpp leaves them out. `bos_token` and `eos_token` are texts, "" where there are none.
    """

    def __init__(self, keys: _Keys) -> None:
        tokens = keys.items("tokens", str)
        types = keys.types(len(tokens))
        ids = {token: i for i, token in enumerate(tokens)}
        words = pre_tokenizer(keys.get("pre", str, ""), keys.path)
        bos_id, eos_id = keys.token_id("bos", tokens), keys.token_id("eos", tokens)

        self.stop_ids = _stop_ids(ids, [keys.token_id(end, tokens) for end in _END_KEYS])
        self.special_ids = self.stop_ids | {i for i, kind in enumerate(types) if kind in _HIDDEN}
        self.bos_token = "" if bos_id is None else tokens[bos_id]
        self.eos_token = "" if eos_id is None else tokens[eos_id]
        self._bos_id = bos_id if keys.get("add_bos_token", bool, words.adds_bos) else None
        self._pieces = [_piece(token, kind) for token, kind in zip(tokens, types, strict=True)]
        own = {tokens[i]: i for i, kind in enumerate(types) if kind == _USER_DEFINED}
        self._ids = own | {tokens[i]: i for i in self.special_ids}
        self._marks = _split_at(self._ids)
        self._own_marks = _split_at(own.keys() - {tokens[i] for i in self.special_ids})
        # Without the control tokens, so that no plain text can become one.
        self._model = _model({token: i for token, i in ids.items() if types[i] not in _HIDDEN}, words, keys)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], path: object = "model file") -> "Tokenizer":
        """Raises Unsupported naming the tokenizer, or BadFile naming the key; both name `path`."""
        keys = _Keys(metadata, path)
        if (name := keys.get("model", str)) != "gpt2":
            raise Unsupported(
                f"{path}: the tokenizer {name!r} (tokenizer.ggml.model) is not supported, only BPE ('gpt2')"
            )
        return cls(keys)

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def encode(self, text: str) -> list[int]:
        """Token ids, special tokens parsed, without BOS. Raises BadRequest for text that isn't Unicode."""
        return self._encode(text, self._marks)

    def encode_plain(self, text: str) -> list[int]:
        """Token ids, special tokens taken as plain text, without BOS. Raises BadRequest for text that isn't Unicode."""
        return self._encode(text, self._own_marks)

    def with_bos(self, ids: list[int]) -> list[int]:
        """The ids with BOS in front where the file asks for it and it isn't there yet."""
        if self._bos_id is None or ids[:1] == [self._bos_id]:
            return ids
        return [self._bos_id, *ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of all the tokens, special ones too; bytes that aren't UTF-8 become U+FFFD. Raises BadRequest."""
        return b"".join(map(self.piece_bytes, ids)).decode(errors="replace")

    def piece_bytes(self, token_id: int) -> bytes:
        """The bytes that the token stands for, often not whole characters. Raises BadRequest for an unknown id."""
        if not 0 <= token_id < len(self._pieces):
            raise BadRequest("tokens", f"token id {token_id} is not in the vocabulary of {self.vocab_size} tokens")
        return self._pieces[token_id]

    def _encode(self, text: str, marks: re.Pattern[str] | None) -> list[int]:
        parts = marks.split(text) if marks else [text]
        ids: list[int] = []
        for i, part in enumerate(parts):  # the odd ones are marks
            if i % 2:
                ids.append(self._ids[part])
            elif part:
                ids.extend(self._merged(part))
        return ids

    def _merged(self, text: str) -> list[int]:
        try:
            return self._model.encode(text, add_special_tokens=False).ids
        except TypeError:  # what the library says to a lone surrogate
            raise BadRequest(None, "the text is not valid Unicode: it holds half of a surrogate pair") from None
