"""SentencePiece's tokenizers out of GGUF: Gemma's and small ones against llama.cpp's ids, round trips, streams."""

import json
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from parkway.errors import BadFile, BadRequest
from parkway.text import TextStream, Tokenizer
from parkway.text.gguf_tokenizer import GgufTokenizer
from parkway.weights.gguf import GgufFile

REFERENCE = Path(__file__).parent / "reference"
GEMMA = json.loads((REFERENCE / "tokenizer_gemma3_270m.json").read_text())["cases"]
VOCABULARIES = json.loads((REFERENCE / "sentence_piece.json").read_text())["vocabularies"]

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
HE, HELL, OWN, END, UNUSED = 264, 265, 267, 268, 269

texts = st.text(st.characters(codec="utf-8", exclude_characters="\u2581"))
"""▁ is read as a space, so it is the one character that doesn't come back."""
told = st.text(st.sampled_from("▁hel<own> é漢\n")) | texts


def small(**more: Any) -> dict[str, Any]:
    """The three first ones of Llama 2, bytes, letters, he and hell, a user's own, Gemma's end, one that is unused."""
    words = ["▁", "h", "e", "l", "ll", "he", "hell", "hel", "<own>", "<end_of_turn>", "el"]
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *words]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [-9.0, -9.0, -9.0, -9.0, -1.0, -2.0, -3.0, -4.0, 0.0, 0.0, -0.5],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 8 + [4, 3, 5],
    } | {f"tokenizer.ggml.{key}": value for key, value in more.items()}


@pytest.fixture(scope="module")
def gemma(gemma3: Path) -> Tokenizer:
    return GgufTokenizer.from_metadata(GgufFile(gemma3).metadata)


@pytest.fixture(scope="module", params=[True, False], ids=["a space in front", "none"])
def either(request: pytest.FixtureRequest) -> tuple[Tokenizer, str]:
    """A small tokenizer, and what it puts in front of a text."""
    return GgufTokenizer.from_metadata(small(add_space_prefix=request.param)), " " * request.param


def of_reference(vocabulary: dict[str, Any]) -> Tokenizer:
    def with_bytes(key: str, each: list[Any]) -> list[Any]:
        return [*vocabulary[key][:3], *each, *vocabulary[key][3:]]

    lists = {
        "tokens": with_bytes("tokens", BYTES),
        "scores": with_bytes("scores", [0.0] * 256),
        "token_type": with_bytes("types", [6] * 256),
    }
    said = {f"tokenizer.ggml.{key}": value for key, value in (lists | vocabulary["settings"]).items()}
    return GgufTokenizer.from_metadata(said | {"tokenizer.ggml.model": "llama", "general.name": vocabulary["name"]})


def test_gemma_equals_llama_cpp(gemma: Tokenizer) -> None:
    assert len(GEMMA) == 80
    for case in GEMMA:
        assert gemma.encode_plain(case["text"]) == case["plain"]
        assert gemma.encode(case["text"]) == case["parse_special"]
        assert gemma.decode(case["plain"]) == gemma.decode(case["parse_special"]) == case["text"]


def test_gemmas_special_tokens(gemma: Tokenizer) -> None:
    assert {gemma.decode([i]) for i in gemma.stop_ids} == {"<eos>", "<end_of_turn>"}
    assert (gemma.bos_token, gemma.eos_token) == ("<bos>", "<eos>")
    assert gemma.with_bos([9]) == [2, 9]
    assert gemma.whole("") == [2]
    assert gemma.decode(gemma.encode_plain("<s>no</s>\n\n<td>")) == "<s>no</s>\n\n<td>"
    assert {gemma.piece_bytes(i) for i in gemma.encode_plain("</s>\t\t   ")} == {b"</s>", b"\t\t", b"   "}


@given(text=texts)
def test_gemma_round_trips(gemma: Tokenizer, text: str) -> None:
    ids = gemma.encode_plain(text)
    assert gemma.decode(ids) == text
    assert gemma.special_ids.isdisjoint(ids)
    assert streamed(gemma, ids) == text


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=[each["title"] for each in VOCABULARIES])
def test_small_vocabularies_equal_llama_cpp(vocabulary: dict[str, Any]) -> None:
    tokenizer = of_reference(vocabulary)
    assert sorted(tokenizer.stop_ids) == vocabulary["ends"]
    for case in vocabulary["cases"]:
        assert tokenizer.encode_plain(case["text"]) == case["plain"]
        assert tokenizer.encode(case["text"]) == case["parse_special"]


@given(text=texts)
def test_round_trips(either: tuple[Tokenizer, str], text: str) -> None:
    tokenizer, prefix = either
    ids = tokenizer.encode_plain(text)
    assert tokenizer.decode(ids) == (prefix + text if text else "")
    assert tokenizer.special_ids.isdisjoint(ids)


@given(text=told)
def test_pieces_of_a_stream_are_the_whole(either: tuple[Tokenizer, str], text: str) -> None:
    tokenizer, _ = either
    ids = tokenizer.encode(text)
    assert streamed(tokenizer, ids) == tokenizer.decode(ids)


def streamed(tokenizer: Tokenizer, ids: list[int]) -> str:
    stream = TextStream(tokenizer, hidden=frozenset())
    return "".join([*map(stream.push, ids), stream.finish()])


def test_the_best_score_merges_first_and_unused_tokens_come_apart_again() -> None:
    tokenizer = GgufTokenizer.from_metadata(small(add_space_prefix=False))
    assert tokenizer.encode("hell") == [HELL]
    assert tokenizer.encode("el") == [261, 262]
    assert tokenizer.piece_bytes(UNUSED) == b""
    assert tokenizer.decode([259, HE]) == " he"


def test_what_has_no_token_is_bytes() -> None:
    tokenizer = GgufTokenizer.from_metadata(small(add_space_prefix=False))
    assert tokenizer.encode("é\0") == [3 + 0xC3, 3 + 0xA9, 3]
    assert tokenizer.piece_bytes(3 + 0xC3) == b"\xc3"
    assert tokenizer.decode([3 + 0xC3]) == "\ufffd"
    assert tokenizer.encode_plain("<0x41>") == [3 + ord(each) for each in "<0x41>"]


@pytest.mark.parametrize(("unknown", "expected"), [(0, [HE, 0, HE]), (-1, [HE, HE])])
def test_without_all_bytes_it_is_unknown_or_left_out(unknown: int, expected: list[int]) -> None:
    said = small(add_space_prefix=False, unknown_token_id=unknown)
    said["tokenizer.ggml.token_type"][3] = 5
    if unknown < 0:
        said["tokenizer.ggml.unknown_token_id"] = -1
    assert GgufTokenizer.from_metadata(said).encode("heéhe") == expected


def test_special_tokens_are_parsed_or_not_and_a_users_own_always() -> None:
    tokenizer = GgufTokenizer.from_metadata(small())
    assert tokenizer.encode("he<own>he<end_of_turn>") == [259, HE, OWN, 259, HE, END]
    assert tokenizer.special_ids.isdisjoint(plain := tokenizer.encode_plain("he<own><end_of_turn><s>"))
    assert plain[:3] == [259, HE, OWN]
    assert tokenizer.decode(plain) == " he<own> <end_of_turn><s>"


def test_no_text_becomes_a_control_token_by_merges() -> None:
    said = small(add_space_prefix=False)
    said["tokenizer.ggml.tokens"] += ["<", "<s", "s", ">"]
    said["tokenizer.ggml.scores"] += [-9.0, -1.0, -9.0, -9.0]
    said["tokenizer.ggml.token_type"] += [1, 1, 1, 1]
    tokenizer = GgufTokenizer.from_metadata(said)
    assert tokenizer.encode_plain("<s>") == [271, 273]
    assert tokenizer.encode("<s>") == [1]


def test_an_end_that_is_a_users_own_is_not_read_out_of_plain_text_either() -> None:
    said = small(add_space_prefix=False)
    said["tokenizer.ggml.token_type"][2] = 4
    said["tokenizer.ggml.tokens"] += ["<", "/", "s", ">", "</", "s>"]
    said["tokenizer.ggml.scores"] += [-9.0, -9.0, -9.0, -9.0, -1.0, -1.0]
    said["tokenizer.ggml.token_type"] += [1] * 6
    tokenizer = GgufTokenizer.from_metadata(said)
    assert tokenizer.encode_plain("</s>") == [274, 275]
    assert tokenizer.encode("</s>") == [2]


def test_a_users_own_token_that_is_written_with_a_space_waits_for_its_score() -> None:
    said = small(add_space_prefix=False)
    said["tokenizer.ggml.tokens"] += ["▁h"]
    said["tokenizer.ggml.scores"] += [-2.5]
    said["tokenizer.ggml.token_type"] += [4]
    tokenizer = GgufTokenizer.from_metadata(said)
    assert tokenizer.encode(" he h") == [259, HE, 270]
    assert tokenizer.encode("▁he") == [270, 261]


@pytest.mark.parametrize("token", ["", "a\0b", "\U0010ffff", "he"])
def test_tokens_that_no_text_needs_do_no_harm(token: str) -> None:
    said = small()
    said["tokenizer.ggml.tokens"] += [token]
    said["tokenizer.ggml.scores"] += [-2.0]
    said["tokenizer.ggml.token_type"] += [1]
    assert GgufTokenizer.from_metadata(said).decode(GgufTokenizer.from_metadata(said).encode("hell\U0010ffffhe")) == (
        " hell\U0010ffffhe"
    )


def test_what_holds_where_the_file_says_nothing() -> None:
    tokenizer = GgufTokenizer.from_metadata(small())
    assert tokenizer.stop_ids == {2, END}
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    assert tokenizer.whole("he") == [1, 259, HE]
    said = small(add_bos_token=False, add_eos_token=True)
    assert GgufTokenizer.from_metadata(said).whole("he") == [259, HE, 2]


def test_out_of_a_file(tmp_path: Path) -> None:
    said = small()
    writer = GGUFWriter(tmp_path / "small.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(said["tokenizer.ggml.tokens"])
    writer.add_token_scores(said["tokenizer.ggml.scores"])
    writer.add_token_types(said["tokenizer.ggml.token_type"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokenizer = GgufTokenizer.from_metadata(GgufFile(tmp_path / "small.gguf").metadata)
    assert tokenizer.encode("hell<own>é") == GgufTokenizer.from_metadata(said).encode("hell<own>é")


@pytest.mark.parametrize(
    ("key", "value"), [("scores", None), ("scores", [0.0]), ("scores", [1]), ("add_space_prefix", "no")]
)
def test_a_wrong_value_is_named(key: str, value: Any) -> None:
    with pytest.raises(BadFile, match=f"^a.gguf: .*tokenizer.ggml.{key}"):
        GgufTokenizer.from_metadata(small(**{key: value}), "a.gguf")


def test_half_a_surrogate_pair_is_the_clients_fault() -> None:
    with pytest.raises(BadRequest, match="surrogate"):
        GgufTokenizer.from_metadata(small()).encode("a\ud83d")
