"""The tokenizer against llama.cpp's ids, its round trips, and what it says to files that it can't read."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parkway.errors import BadFile, BadRequest, Unsupported
from parkway.text import TextStream, Tokenizer
from parkway.text.gguf_tokenizer import GgufTokenizer

REFERENCE = Path(__file__).parent / "reference"
CASES = json.loads((REFERENCE / "tokenizer_smollm2.json").read_text())["cases"]
PRE_TOKENIZERS = json.loads((REFERENCE / "pre_tokenizers.json").read_text())

BOS, END, THINK, PAD, CONTROL = 260, 261, 262, 263, 264

# The default model has no token for some bytes: six control characters and what begins planes 4 to 11.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x04\x06\x13\x14\x16\x1d", max_codepoint=0x3FFFF))


def test_there_are_80_reference_cases() -> None:
    assert len(CASES) == 80
    assert any(case["plain"] != case["parse_special"] for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_equals_llama_cpp(tokenizer: Tokenizer, case: dict[str, Any]) -> None:
    assert tokenizer.encode_plain(case["text"]) == case["plain"]
    assert tokenizer.encode(case["text"]) == case["parse_special"]
    assert tokenizer.decode(case["plain"]) == case["text"]
    assert tokenizer.decode(case["parse_special"]) == case["text"]


@pytest.mark.parametrize("name", PRE_TOKENIZERS["ids"])
def test_every_pre_tokenizer_equals_llama_cpp(metadata: dict[str, Any], name: str) -> None:
    tokenizer = GgufTokenizer.from_metadata(metadata | {"tokenizer.ggml.pre": name})
    assert [tokenizer.encode_plain(text) for text in PRE_TOKENIZERS["texts"]] == PRE_TOKENIZERS["ids"][name]


@given(text=texts)
def test_round_trips(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode_plain(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.special_ids.isdisjoint(ids)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(parts=st.lists(st.sampled_from(["<|im_start|>", "<|im_end|>", "<|im_", "user\n", " a", "<", "|>"])))
def test_special_tokens_are_parsed_only_by_encode(tokenizer: Tokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    assert tokenizer.special_ids.isdisjoint(tokenizer.encode_plain(text))
    specials = [i for i in tokenizer.encode(text) if i in tokenizer.special_ids]
    assert len(specials) == text.count("<|im_start|>") + text.count("<|im_end|>")
    assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.decode(tokenizer.encode_plain(text)) == text


def test_the_default_model(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 49152
    assert {tokenizer.decode([i]) for i in tokenizer.stop_ids} == {"<|im_end|>", "<|endoftext|>", "<reponame>"}
    assert tokenizer.special_ids == set(range(17))
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.with_bos([5]) == [5]


def test_bytes_without_a_token_are_left_out_as_llama_cpp_leaves_them_out(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a\U00040000b\x04") == [81, 218, 218, 218, 82]


def test_bytes_and_merges(toy: dict[str, Any]) -> None:
    tokenizer = GgufTokenizer.from_metadata(toy)
    assert [tokenizer.piece_bytes(i) for i in range(256)] == [bytes([i]) for i in range(256)]
    assert tokenizer.encode("hello") == [258, ord("o")]
    assert tokenizer.encode("é") == list("é".encode())
    assert tokenizer.decode([0xC3]) == "\ufffd"
    assert tokenizer.decode([]) == ""


def test_users_own_tokens_are_always_parsed_and_unused_ones_have_no_text(toy: dict[str, Any]) -> None:
    tokenizer = GgufTokenizer.from_metadata(toy)
    assert tokenizer.encode("<think><s>") == [THINK, BOS]
    assert tokenizer.encode_plain("<think><s>") == [THINK, *b"<s>"]
    assert tokenizer.piece_bytes(THINK) == b"<think>"
    assert tokenizer.piece_bytes(PAD) == b""
    assert tokenizer.special_ids == {BOS, END, CONTROL}


def test_of_two_special_tokens_at_one_place_the_longer_is_taken(toy: dict[str, Any]) -> None:
    toy["tokenizer.ggml.tokens"] += ["<s", "<s>>"]
    toy["tokenizer.ggml.token_type"] += [3, 3]
    assert GgufTokenizer.from_metadata(toy).encode("<s>><s><s.") == [266, BOS, 265, ord(".")]


@given(
    marks=st.sets(st.text("<ab|", min_size=2, max_size=4), min_size=1),
    parts=st.lists(st.text("<ab|", max_size=4)),
)
def test_marks_are_cut_out_from_the_left_the_longest_first(marks: set[str], parts: list[str]) -> None:
    tokens = [*"<ab|", *sorted(marks)]
    said = {"model": "gpt2", "pre": "gpt-2", "merges": [], "tokens": tokens, "token_type": [1] * 4 + [4] * len(marks)}
    tokenizer = GgufTokenizer.from_metadata({f"tokenizer.ggml.{key}": value for key, value in said.items()})
    longest_first = "|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))
    cut = re.findall(longest_first, "".join(parts))
    assert tokenizer.encode("".join(parts)) == [tokens.index(each) for each in cut]


def test_whole_words_skip_the_merges_but_never_become_control_tokens(toy: dict[str, Any]) -> None:
    assert GgufTokenizer.from_metadata(toy).encode_plain("abc") == [*b"abc"]
    whole = GgufTokenizer.from_metadata(toy | {"tokenizer.ggml.pre": "llama-bpe"})
    assert whole.encode_plain("abc") == [259]
    assert whole.encode_plain("control") == [*b"control"]
    assert whole.encode("control") == [CONTROL]


@pytest.mark.parametrize(
    ("pre", "add_bos", "expected"),
    [("gpt-2", None, [9]), ("gpt-2", True, [BOS, 9]), ("llama-bpe", None, [BOS, 9]), ("llama-bpe", False, [9])],
)
def test_bos(toy: dict[str, Any], pre: str, add_bos: bool | None, expected: list[int]) -> None:
    said = {} if add_bos is None else {"tokenizer.ggml.add_bos_token": add_bos}
    tokenizer = GgufTokenizer.from_metadata(toy | {"tokenizer.ggml.pre": pre} | said)
    assert tokenizer.with_bos([9]) == expected
    assert tokenizer.with_bos(expected) == expected


def test_answers_end_at_tokens_known_by_name_or_by_key(toy: dict[str, Any]) -> None:
    toy["tokenizer.ggml.tokens"] += ["<|eot_id|>", "<|end|>", "later"]
    toy["tokenizer.ggml.token_type"] += [3, 3, 1]
    toy["tokenizer.ggml.eom_token_id"] = 267
    tokenizer = GgufTokenizer.from_metadata(toy)
    assert tokenizer.stop_ids == {END, 265, 266, 267}
    assert tokenizer.encode("later") == [267]


@pytest.mark.parametrize(
    ("control", "own", "eos", "ends"),
    [
        (["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>", "<|start_header_id|>"], [], 0, [0, 1, 2]),
        (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], [], 2, [0, 2]),
        (["<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"], ["<s>", "</s>"], 0, [0, 3]),
        (["<eos>", "<bos>"], ["<end_of_turn>"], 0, [0, 2]),
        (["<|endoftext|>", "<|assistant|>", "<|end|>"], [], 0, [0, 2]),
        (["<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"], [], 3, [3, 4]),
        (["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], [], 2, [2]),
        (["<\uff5cend\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>"], [], 0, [0]),
    ],
    ids=["llama 3", "qwen", "gemma", "gemma, its end a user's own", "phi 3", "gpt-oss", "mistral", "deepseek"],
)
def test_an_answer_ends_where_the_familys_template_ends_a_turn(
    toy: dict[str, Any], control: list[str], own: list[str], eos: int, ends: list[int]
) -> None:
    said = {
        "tokenizer.ggml.tokens": [*toy["tokenizer.ggml.tokens"][:259], *control, *own],
        "tokenizer.ggml.token_type": [1] * 259 + [3] * len(control) + [4] * len(own),
        "tokenizer.ggml.bos_token_id": 259,
        "tokenizer.ggml.eos_token_id": 259 + eos,
    }
    tokenizer = GgufTokenizer.from_metadata(toy | said)
    assert tokenizer.stop_ids == {259 + end for end in ends}
    assert tokenizer.stop_ids <= tokenizer.special_ids
    assert tokenizer.stop_ids.isdisjoint(tokenizer.encode_plain("".join([*control, *own])))


@pytest.mark.parametrize("token_id", [-1, 265, 10**12])
def test_an_unknown_id_is_the_clients_fault(toy: dict[str, Any], token_id: int) -> None:
    with pytest.raises(BadRequest, match=str(token_id)) as caught:
        GgufTokenizer.from_metadata(toy).decode([1, token_id])
    assert caught.value.param == "tokens"


def test_a_row_of_the_model_that_is_no_token_has_no_text(toy: dict[str, Any]) -> None:
    tokenizer = GgufTokenizer.from_metadata(toy)
    assert tokenizer.piece_bytes(tokenizer.vocab_size) == b""
    stream = TextStream(tokenizer)
    assert stream.push(tokenizer.vocab_size + 7) + stream.push(ord("a")) == "a"


def test_half_a_surrogate_pair_is_the_clients_fault(toy: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="surrogate"):
        GgufTokenizer.from_metadata(toy).encode("a\ud83d")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("model", "bert", "'bert'"),
        ("model", "t5", "'t5'"),
        ("model", "rwkv", "'rwkv'"),
        ("pre", "some-new-one", "'some-new-one'"),
    ],
)
def test_what_is_not_supported_is_named(toy: dict[str, Any], key: str, value: str, says: str) -> None:
    with pytest.raises(Unsupported, match=f"a.gguf.*{says}.*tokenizer.ggml.{key}"):
        GgufTokenizer.from_metadata(toy | {f"tokenizer.ggml.{key}": value}, "a.gguf")


@pytest.mark.parametrize("key", ["model", "tokens", "merges"])
def test_a_missing_key_is_named(toy: dict[str, Any], key: str) -> None:
    del toy[f"tokenizer.ggml.{key}"]
    with pytest.raises(BadFile, match=f"^a.gguf: .*tokenizer.ggml.{key}"):
        GgufTokenizer.from_metadata(toy, "a.gguf")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", 3),
        ("tokens", "abc"),
        ("tokens", [1, 2]),
        ("token_type", [1, 1]),
        ("merges", ["nospace"]),
        ("merges", ["x unknown"]),
        ("eos_token_id", 265),
        ("bos_token_id", "1"),
        ("add_bos_token", "yes"),
    ],
)
def test_a_wrong_value_is_named(toy: dict[str, Any], key: str, value: Any) -> None:
    with pytest.raises(BadFile, match=f"^a.gguf: .*tokenizer.ggml.{key}"):
        GgufTokenizer.from_metadata(toy | {f"tokenizer.ggml.{key}": value}, "a.gguf")
