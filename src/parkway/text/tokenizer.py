"""Between text and token ids: what every tokenizer can do, wherever it comes from. Knows no model and no request."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import tokenizers

from parkway.errors import BadRequest

# Files name one end of generation, or two; the others are known by their text (llama.cpp's list).
END_TEXTS = (
    *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>"),
    *("<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"),
    *("<eos>", "<turn|>", "<|tool_response>", "[e~["),
    *("<end_of_utterance>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|fim_pad|>", "<fim-pad>", "<fim_pad>"),
    *("<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"),
)


_SHORT = 1 << 13
"""Longer texts are encoded as a batch of one: the library holds Python's lock while it encodes a single text, and every
other thread would stand still. For short ones its pool of threads costs more than they do."""


def _byte_characters() -> dict[int, str]:
    """GPT-2 writes each byte as a printable character; this maps them back, as characters 0 to 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = sorted(set(range(256)) - set(printable))
    return {byte: chr(byte) for byte in printable} | {256 + i: chr(byte) for i, byte in enumerate(others)}


_BYTES = _byte_characters()


def bytes_of(token: str) -> bytes:
    """What a byte-level token stands for; one that is not in GPT-2's alphabet stands for itself."""
    try:
        return token.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode(errors="replace")


def stop_ids(ids: Mapping[str, int], named: Iterable[int | None]) -> frozenset[int]:
    """The tokens that end an answer: those that are named, and those of `ids` that are known by their text."""
    found = {ids[text] for text in END_TEXTS if text in ids}
    # Gemma's </s> ends what HTML strikes through, no turn.
    if "<end_of_turn>" in ids:
        found.discard(ids.get("</s>", -1))
    found |= {i for i in named if i is not None}
    # In OpenAI's harmony format <|end|> closes a message, not the answer.
    if {"<|return|>", "<|call|>", "<|end|>"} <= ids.keys():
        found.discard(ids["<|end|>"])
    return frozenset(found)


def encoded(model: tokenizers.Tokenizer, text: str) -> list[int]:
    """Token ids without BOS. Raises BadRequest for text that isn't Unicode."""
    try:
        if len(text) <= _SHORT:
            return model.encode(text, add_special_tokens=False).ids
        return model.encode_batch_fast([text], add_special_tokens=False)[0].ids
    except TypeError:  # what the library says to a lone surrogate
        raise not_unicode() from None


def not_unicode() -> BadRequest:
    return BadRequest(None, "the text is not valid Unicode: it holds half of a surrogate pair")


class Tokenizer(ABC):
    """Text to token ids and back, for one model file.

    `stop_ids` end an answer. `special_ids` are those and all control tokens: text like any other to `encode_plain`,
    shown by `decode` and `piece_bytes`. Neither way of encoding adds BOS. `bos_token` and `eos_token` are texts, ""
    where there are none.
    """

    stop_ids: frozenset[int]
    special_ids: frozenset[int]
    bos_token: str
    eos_token: str
    fim_ids: Mapping[str, int] = MappingProxyType({})
    """Which tokens mark the parts of a text with a gap, where the file says so: `pre`, `suf`, `mid`, `rep`, `sep`."""
    _bos_id: int | None
    """Where the file asks for BOS."""
    _end_id: int | None = None
    """What the file wants behind a text that is whole, such as one to embed."""
    _pieces: list[bytes]
    """What each token stands for."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Token ids, special tokens parsed, without BOS. Raises BadRequest for text that isn't Unicode."""

    @abstractmethod
    def encode_plain(self, text: str) -> list[int]:
        """Token ids, special tokens taken as plain text, without BOS. Raises BadRequest for text that isn't Unicode."""

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def with_bos(self, ids: list[int]) -> list[int]:
        """The ids with BOS in front where the file asks for it and it isn't there yet."""
        if self._bos_id is None or ids[:1] == [self._bos_id]:
            return ids
        return [self._bos_id, *ids]

    def whole(self, text: str) -> list[int]:
        """Token ids of a text that nothing follows, with BOS and an end where the file asks. Raises BadRequest."""
        ids = self.with_bos(self.encode(text))
        return ids if self._end_id is None or ids[-1:] == [self._end_id] else [*ids, self._end_id]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of all the tokens, special ones too; bytes that aren't UTF-8 become U+FFFD. Raises BadRequest."""
        for token_id in ids:
            if not 0 <= token_id < self.vocab_size:
                raise BadRequest("tokens", f"token id {token_id} is not in the vocabulary of {self.vocab_size} tokens")
        return b"".join(map(self.piece_bytes, ids)).decode(errors="replace")

    def piece_bytes(self, token_id: int) -> bytes:
        """The bytes that the token stands for, often not whole characters. None for an id that is no token's: a model
        may have more rows than there are tokens, and may choose one of them."""
        return self._pieces[token_id] if 0 <= token_id < len(self._pieces) else b""
