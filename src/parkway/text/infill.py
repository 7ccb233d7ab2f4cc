"""Prompts for the text that is missing between a prefix and a suffix. Knows no model and no request."""

from collections.abc import Sequence
from typing import NamedTuple

from parkway.errors import BadRequest
from parkway.text.tokenizer import Tokenizer

# How families spell the marks; a file may also name them.
_SPELLINGS = {
    "pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim\u2581begin\uff5c>", "<PRE>", "\u2581<PRE>"),
    "suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim\u2581hole\uff5c>", "<SUF>", "\u2581<SUF>"),
    "mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim\u2581end\uff5c>", "<MID>", "\u2581<MID>"),
    "rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "sep": ("<|file_sep|>",),
}
_WORDS = {"pre": "prefix", "suf": "suffix", "mid": "middle"}
_SUFFIX_PART = 4
"""The suffix may take one of so many parts of the room, and more where the prefix leaves some."""


class Marks(NamedTuple):
    """The tokens between the parts; not every model knows several files."""

    pre: int
    suf: int
    mid: int
    rep: int | None
    sep: int | None


class Gap(NamedTuple):
    """What is known around the missing text. `begin`: how it begins. `files`: names and texts of others."""

    prefix: str
    suffix: str
    begin: str = ""
    files: Sequence[tuple[str, str]] = ()


def marks_of(tokenizer: Tokenizer) -> Marks:
    """Raises BadRequest, a 501, for a model that has never seen a gap."""
    found = {name: _mark(tokenizer, name) for name in _SPELLINGS}
    pre, suf, mid = (found[name] for name in _WORDS)
    if pre is None or suf is None or mid is None:
        missing = ", ".join(word for name, word in _WORDS.items() if found[name] is None)
        message = f"Infill is not supported by this model: its vocabulary has no token for {missing}"
        raise BadRequest(None, message, status=501)
    return Marks(pre, suf, mid, found["rep"], found["sep"])


def prompt_of(gap: Gap, tokenizer: Tokenizer, room: int) -> list[int]:
    """At most `room` tokens. What doesn't fit is left out: of other files and the prefix the beginning, of the suffix
    the end. Raises as marks_of."""
    marks = marks_of(tokenizer)
    prefix, suffix = tokenizer.encode_plain(gap.prefix), tokenizer.encode_plain(gap.suffix)
    begin, bos = tokenizer.encode(gap.begin), tokenizer.with_bos([])
    left = max(0, room - len(bos) - len(begin) - 3)
    suffix = suffix[: max(left // _SUFFIX_PART, left - len(prefix))]
    prefix = _last(prefix, left - len(suffix))
    files = _last(_other_files(gap.files, marks, tokenizer), left - len(suffix) - len(prefix))
    return [*bos, *files, marks.pre, *prefix, *begin, marks.suf, *suffix, marks.mid]


def _mark(tokenizer: Tokenizer, name: str) -> int | None:
    if name in tokenizer.fim_ids:
        return tokenizer.fim_ids[name]
    for text in _SPELLINGS[name]:
        ids = tokenizer.encode(text)
        if len(ids) == 1 and tokenizer.piece_bytes(ids[0]) == text.encode():
            return ids[0]
    return None


def _other_files(files: Sequence[tuple[str, str]], marks: Marks, tokenizer: Tokenizer) -> list[int]:
    """… and, where the model knows several files, that the gap is in one of its own."""
    ids = [] if marks.rep is None else [marks.rep, *tokenizer.encode_plain("project\n")]
    for name, text in files:
        if marks.sep is None:
            ids += tokenizer.encode_plain(f"{text}\n\n")
        else:
            ids += [marks.sep, *tokenizer.encode_plain(f"{name}\n{text}")]
    return ids if marks.sep is None else [*ids, marks.sep, *tokenizer.encode_plain("file\n")]


def _last(ids: list[int], count: int) -> list[int]:
    return ids[max(0, len(ids) - count) :]
