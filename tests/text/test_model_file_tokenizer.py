"""Folders with tokenizer.model alone: ids and texts are SentencePiece's own, special ones are the folder's."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from parkway.errors import BadFile
from parkway.text import ModelText, Tokenizer
from parkway.weights import open_checkpoint
from parkway.weights.summary import facts
from tests.checkpoints import LLAMA, tiny_folder

LINES = [
    "The quick brown fox jumps over the lazy dog.",
    "A chat is parked, never failed, and its answer never depends on the traffic.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "  Indented code:\tdef f(x):\n    return x + 1",
    "12345 67890 3.14159 <html> {json: [1, 2]}",
]
KINDS: dict[str, dict[str, Any]] = {
    "bpe": {"model_type": "bpe", "byte_fallback": True},
    "bpe without bytes": {"model_type": "bpe"},
    "unigram": {"model_type": "unigram", "byte_fallback": True},
    "kept as it is": {
        "model_type": "bpe",
        "byte_fallback": True,
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
        "normalization_rule_name": "identity",
    },
    "own symbols": {"model_type": "bpe", "byte_fallback": True, "user_defined_symbols": ["<own>", "  "]},
}
MARKS = {"300": {"content": "<|im_end|>", "special": True}, "301": {"content": "<tool>", "special": False}}


def trained(**how: Any) -> bytes:
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 20), model_writer=file, hard_vocab_limit=False, minloglevel=2,
        vocab_size=400 if how.get("byte_fallback") else 120, character_coverage=0.98, **how,
    )  # fmt: skip
    return file.getvalue()


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest) -> bytes:
    return trained(**KINDS[request.param])


@pytest.fixture(scope="module")
def bpe() -> bytes:
    return trained(**KINDS["bpe"])


def tokenizer_of(model: bytes, vocabulary: int = 0, added: Any = None, **settings: Any) -> Tokenizer:
    said: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.vocab_size": vocabulary,
        "tokenizer.huggingface.json": None,
        "tokenizer.huggingface.model": model,
        "tokenizer.huggingface.added": added or {},
        "tokenizer.huggingface.config": settings,
        "tokenizer.huggingface.eos_token_id": [],
    }
    return ModelText.from_metadata(said, "toy", "folder").tokenizer


@given(text=st.one_of(st.sampled_from(LINES), st.text(st.characters(codec="utf-8")), st.text(" \tfo<>x\n▁é漢")))
def test_ids_are_those_of_the_library(model: bytes, text: str) -> None:
    library = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert tokenizer_of(model).encode_plain(text) == library.encode(text)


@pytest.mark.parametrize("line", LINES)
def test_pieces_are_the_text(bpe: bytes, line: str) -> None:
    tokenizer = tokenizer_of(bpe)
    library = sentencepiece.SentencePieceProcessor(model_proto=bpe)
    ids = tokenizer.encode(line)
    assert tokenizer.decode(ids) == " " + library.decode(ids)
    assert b"".join(map(tokenizer.piece_bytes, tokenizer.encode("漢"))) == " 漢".encode()


def test_bos_and_ends_are_the_files(bpe: bytes) -> None:
    tokenizer = tokenizer_of(bpe, vocabulary=500)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.stop_ids) == ("<s>", "</s>", frozenset({2}))
    assert tokenizer.with_bos([9]) == [1, 9]
    assert tokenizer.vocab_size == 500
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer_of(bpe, add_bos_token=False).with_bos([9]) == [9]
    assert tokenizer_of(bpe, add_eos_token=True).whole("a")[-1] == 2


def test_control_tokens_are_read_where_they_are_meant_alone(bpe: bytes) -> None:
    tokenizer = tokenizer_of(bpe)
    library = sentencepiece.SentencePieceProcessor(model_proto=bpe)
    assert tokenizer.encode("a</s>b") == [*library.encode("a"), 2, *library.encode("b")]
    assert tokenizer.encode_plain("a</s>b") == library.encode("a</s>b")
    assert 2 not in tokenizer.encode_plain("a</s>b")


@pytest.mark.parametrize("how", ["added", "added_tokens_decoder"])
def test_added_tokens(bpe: bytes, how: str) -> None:
    size = sentencepiece.SentencePieceProcessor(model_proto=bpe).get_piece_size()
    ids = size, size + 1
    if how == "added":
        tokenizer = tokenizer_of(bpe, added={"<|im_end|>": ids[0], "<tool>": ids[1]})
    else:
        told = zip(map(str, ids), MARKS.values(), strict=True)
        tokenizer = tokenizer_of(bpe, added_tokens_decoder=dict(told), eos_token="<|im_end|>")
        assert tokenizer.special_ids >= {ids[0]}
        assert ids[1] not in tokenizer.special_ids
        assert tokenizer.eos_token == "<|im_end|>"
        assert ids[0] not in tokenizer.encode_plain("a<|im_end|>")
    assert tokenizer.stop_ids >= {ids[0]}
    assert tokenizer.encode("a<|im_end|>b<tool>")[-1] == ids[1]
    assert tokenizer.piece_bytes(ids[0]) == b"<|im_end|>"
    assert ids[1] in tokenizer.encode_plain("<tool>")


def test_white_space_beside_an_added_token_goes_where_the_folder_says_so(bpe: bytes) -> None:
    mark = {"content": "<|end|>", "special": True, "rstrip": True, "lstrip": True}
    tokenizer = tokenizer_of(bpe, added_tokens_decoder={"999": mark})
    assert tokenizer.encode("the \n<|end|>\n the") == tokenizer.encode("the<|end|>the")


def test_only_the_beginning_has_a_space_in_front_where_the_folder_is_not_of_old(bpe: bytes) -> None:
    old, new = tokenizer_of(bpe), tokenizer_of(bpe, legacy=False)
    assert old.decode(old.encode("fox</s>fox")) == " fox</s> fox"
    assert new.decode(new.encode("fox</s>fox")) == " fox</s>fox"


@pytest.mark.parametrize(
    ("model", "more", "wanted"),
    [
        (b"no model", {}, "tokenizer.model can't be read"),
        (None, {}, "there is neither tokenizer.json nor tokenizer.model"),
        ("bpe", {"added": {"<x>": "3"}}, "'<x>' has the id '3'"),
        ("bpe", {"added_tokens_decoder": {"x": {"content": "<x>"}}}, "'<x>' has the id 'x'"),
        ("bpe", {"added": {"<x>": 1 << 40}}, "'<x>' has the id 1099511627776"),
    ],
)
def test_what_is_wrong_is_named(bpe: bytes, model: Any, more: Any, wanted: str) -> None:
    with pytest.raises(BadFile, match=wanted):
        tokenizer_of(bpe if model == "bpe" else model, **more)


def test_a_folder_is_loaded(tmp_path: Path, bpe: bytes) -> None:
    folder = tiny_folder(tmp_path / "tiny", LLAMA)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(bpe)
    (folder / "added_tokens.json").write_text(json.dumps({"<tool>": 450}))
    (folder / "tokenizer_config.json").write_text("{}")
    tokenizer = ModelText.from_path(folder).tokenizer
    assert tokenizer.encode("The fox") == sentencepiece.SentencePieceProcessor(model_proto=bpe).encode("The fox")
    assert tokenizer.encode("<tool>") == [450]
    assert facts(open_checkpoint(folder))["tokenizer"] == "tokenizer.model"
