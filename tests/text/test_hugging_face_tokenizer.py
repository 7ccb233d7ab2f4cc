"""The tokenizer of a Hugging Face folder: the ids of the same vocabulary in a GGUF file, special tokens, BOS, ends."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from parkway.errors import BadFile, BadRequest, Unsupported
from parkway.text import ModelText, TextStream, Tokenizer
from tests.checkpoints import LLAMA, MERGES, TEMPLATE, TOKENS, tiny_folder, tiny_gguf

PLAIN = {token: i for i, token in enumerate(TOKENS) if not token.startswith("<|")}
EOT, START, END = (TOKENS.index(token) for token in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
HELLO = [{"role": "user", "content": "the he"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("text") / "tiny", LLAMA)


@pytest.fixture(scope="module")
def pair(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """From the folder, and from a GGUF file with the same vocabulary."""
    file = tiny_gguf(folder.with_name("tiny.gguf"), LLAMA)
    return ModelText.from_path(folder).tokenizer, ModelText.from_path(file).tokenizer


def metadata(tokenizer: Library, eos: Any = (), vocabulary: Any = 0, **settings: Any) -> dict[str, Any]:
    return {
        "general.architecture": "llama",
        "llama.vocab_size": vocabulary,
        "tokenizer.huggingface.json": tokenizer.to_str(),
        "tokenizer.huggingface.config": settings,
        "tokenizer.huggingface.eos_token_id": list(eos),
    }


def byte_level(*special: str, plain: tuple[str, ...] = ()) -> Library:
    library = Library(models.BPE(PLAIN, [(left, right) for left, right in map(str.split, MERGES)]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(token, special=True) for token in special])
    library.add_tokens(list(plain))
    return library


def made(tokenizer: Library, **more: Any) -> Tokenizer:
    return ModelText.from_metadata(metadata(tokenizer, **more), "toy", "folder").tokenizer


@given(st.text(st.characters(codec="utf-8")))
def test_ids_and_text_are_those_of_the_gguf_file(pair: tuple[Tokenizer, Tokenizer], text: str) -> None:
    ours, other = pair
    assert ours.encode(text) == other.encode(text)
    assert ours.encode_plain(text) == other.encode_plain(text)
    assert ours.decode(ours.encode_plain(text)) == text


def test_a_long_text_has_the_ids_of_its_lines(pair: tuple[Tokenizer, Tokenizer]) -> None:
    line = "the he <|im_start|> é, then her<|im_end|>"
    for each in pair:
        assert each.encode(line * 2000) == each.encode(line) * 2000
        assert each.encode_plain(f"{line}\n" * 2000) == each.encode_plain(f"{line}\n") * 2000
        with pytest.raises(BadRequest, match="not valid Unicode"):
            each.encode_plain("\ud800" * 20_000)


@pytest.mark.parametrize("which", [0, 1])
def test_other_threads_go_on_while_a_long_text_is_encoded(pair: tuple[Tokenizer, Tokenizer], which: int) -> None:
    turns = 0
    with ThreadPoolExecutor(1) as pool:
        encoding = pool.submit(pair[which].encode, "the other, then her " * 30_000)
        while not encoding.done():
            time.sleep(0.001)
            turns += 1
    assert turns > 10


@given(st.lists(st.sampled_from(["<|im_start|>", "<|im_end|>", "<|im_", "the he", "\n", "é", "|>"])))
def test_special_tokens_are_parsed_only_by_encode(pair: tuple[Tokenizer, Tokenizer], parts: list[str]) -> None:
    ours, other = pair
    text = "".join(parts)
    assert ours.encode(text) == other.encode(text)
    assert ours.encode_plain(text) == other.encode_plain(text)
    assert ours.special_ids.isdisjoint(ours.encode_plain(text))
    assert ours.decode(ours.encode(text)) == text


def test_everything_else_is_that_of_the_gguf_file_too(pair: tuple[Tokenizer, Tokenizer]) -> None:
    ours, other = pair
    for name in ("vocab_size", "stop_ids", "special_ids", "bos_token", "eos_token"):
        assert getattr(ours, name) == getattr(other, name), name
    assert [ours.piece_bytes(i) for i in range(262)] == [other.piece_bytes(i) for i in range(262)]
    assert ours.with_bos([5]) == other.with_bos([5]) == [5]


def test_chats_are_rendered_by_the_folders_template(folder: Path) -> None:
    text = ModelText.from_path(folder)
    rendered = "<|im_start|>user\nthe he<|im_end|>\n<|im_start|>assistant\n"
    assert text.tokenizer.decode(text.chat_prompt(HELLO)) == rendered


@pytest.mark.parametrize(
    ("in_config", "in_file", "said"),
    [
        (None, "{{ messages[0].content }}!", "the he!"),
        (TEMPLATE, "file", "file"),
        ([{"name": "tool_use", "template": "tool"}, {"name": "default", "template": "chat"}], None, "chat"),
    ],
)
def test_where_a_template_may_be(tmp_path: Path, in_config: Any, in_file: str | None, said: str) -> None:
    folder = tiny_folder(tmp_path / "tiny", LLAMA)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": in_config}))
    if in_file:
        (folder / "chat_template.jinja").write_text(in_file)
    text = ModelText.from_path(folder)
    assert text.tokenizer.decode(text.chat_prompt(HELLO)) == said


@pytest.mark.parametrize("named", [None, [{"name": "rag", "template": "x"}], []])
def test_without_a_template_there_is_no_chat(tmp_path: Path, named: Any) -> None:
    folder = tiny_folder(tmp_path / "tiny", LLAMA)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    with pytest.raises(BadRequest, match="tiny has no chat template"):
        ModelText.from_path(folder).chat_prompt(HELLO)


@pytest.mark.parametrize(
    ("settings", "in_front", "expected"),
    [
        ({"bos_token": "<s>"}, False, [9]),
        ({"bos_token": "<s>"}, True, [259, 9]),
        ({"bos_token": {"content": "<s>", "special": True}, "add_bos_token": True}, False, [259, 9]),
        ({"bos_token": "<s>", "add_bos_token": False}, True, [9]),
        ({"bos_token": None}, True, [259, 9]),
        ({"bos_token": "unknown", "add_bos_token": True}, False, [9]),
    ],
)
def test_bos(settings: dict[str, Any], in_front: bool, expected: list[int]) -> None:
    library = byte_level("<s>")
    if in_front:
        library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 259)])
    tokenizer = made(library, **settings)
    assert tokenizer.encode("!") == [0]
    assert tokenizer.with_bos([9]) == expected
    assert tokenizer.with_bos(expected) == expected


def test_the_end_that_tokenizer_json_puts_behind_a_text_is_for_whole_ones() -> None:
    library = byte_level("</s>")
    assert made(library).whole("!") == [0]
    library.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 259)])
    tokenizer = made(library, add_bos_token=False)
    assert tokenizer.whole("!") == tokenizer.whole("!</s>") == [0, 259]
    assert tokenizer.encode("!") == [0]


def test_answers_end_where_any_of_the_files_says_or_at_tokens_known_by_name() -> None:
    library = byte_level("<|eot_id|>", "<own>", "<odd>", plain=("<|fim_pad|>",))
    tokenizer = made(library, eos=[260], eos_token="<odd>")
    assert tokenizer.stop_ids == {259, 260, 261, 262}
    assert tokenizer.special_ids == {259, 260, 261, 262}
    assert tokenizer.eos_token == "<odd>"


def test_a_folders_files_that_name_ends(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "tiny", LLAMA, config={"eos_token_id": [3, 4]})
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 5}))
    assert ModelText.from_path(folder).tokenizer.stop_ids == {3, 4, 5, EOT, END}
    (folder / "generation_config.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    assert ModelText.from_path(folder).tokenizer.stop_ids == {3, 4, EOT, END}


def test_ids_that_only_the_model_has_are_without_text() -> None:
    tokenizer = made(byte_level("<s>"), vocabulary=300)
    assert tokenizer.vocab_size == 300
    assert tokenizer.decode([0, 280, 259]) == "!<s>"


def test_truncation_and_padding_of_the_file_are_for_training() -> None:
    library = byte_level("<s>")
    library.enable_truncation(3)
    library.enable_padding(length=5)
    assert len(made(library).encode("!" * 10)) == 10
    assert len(made(library).encode("!")) == 1


def sentence_pieces() -> Library:
    """As Llama 2 and Mistral have it."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "h", "i", "hi", "▁hi"]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    library = Library(models.BPE(vocabulary, [("h", "i"), ("▁", "hi")], byte_fallback=True, unk_token="<unk>"))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    library.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokens[:3]])
    return library


def test_sentence_pieces_and_bytes() -> None:
    tokenizer = made(sentence_pieces(), bos_token="<s>", eos_token="</s>", add_bos_token=True)
    ids = tokenizer.encode("hi hié\n")
    assert tokenizer.piece_bytes(ids[0]) == b" hi"
    assert tokenizer.decode(ids) == " hi hié\n"
    assert tokenizer.with_bos(ids)[0] == 1
    assert tokenizer.stop_ids == {2}


def gemma_like() -> Library:
    """As Gemma has it: no space in front, runs of spaces as tokens of their own."""
    library = sentence_pieces()
    library.normalizer = normalizers.Replace(" ", "▁")
    library.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    library.add_tokens([AddedToken("▁▁", normalized=True), AddedToken("<td>", normalized=False)])
    library.add_special_tokens([AddedToken("<end_of_turn>", special=True, normalized=False)])
    return library


def mistral_like() -> Library:
    """As Mistral has it since its third version: a space in front of the text, but not behind special tokens."""
    library = sentence_pieces()
    library.normalizer = None
    library.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    library.add_special_tokens([AddedToken("[INST]", special=True, normalized=False)])
    return library


@pytest.mark.parametrize(
    ("make", "prefix"),
    [(sentence_pieces, " "), (gemma_like, ""), (mistral_like, " ")],
    ids=["llama 2", "gemma", "mistral"],
)
@given(text=st.text(st.sampled_from("hi é漢\n<td>")) | st.text(st.characters(codec="utf-8", exclude_characters="▁")))
def test_sentence_pieces_stream_as_the_library_decodes(make: Callable[[], Library], prefix: str, text: str) -> None:
    library = make()
    tokenizer = made(library)
    ids = tokenizer.encode_plain(text)
    stream = TextStream(tokenizer, hidden=frozenset())
    streamed = "".join([*map(stream.push, ids), stream.finish()])
    assert streamed == tokenizer.decode(ids)
    assert streamed in (text, prefix + text)
    assert streamed.removeprefix(prefix) == library.decode(ids, skip_special_tokens=False)


def test_gemmas_own_tokens_are_text_and_its_end_of_turn_is_the_end() -> None:
    tokenizer = made(gemma_like())
    ids = tokenizer.encode_plain("hi  <td>")
    assert [tokenizer.piece_bytes(i) for i in ids] == [b"hi", b"  ", b"<td>"]
    assert [tokenizer.decode([i]) for i in tokenizer.stop_ids] == ["<end_of_turn>"]


@pytest.mark.parametrize(
    ("change", "kind", "wanted"),
    [
        ({"tokenizer.huggingface.json": "{"}, BadFile, "tokenizer.json can't be read: "),
        (
            {"tokenizer.huggingface.json": Library(models.BPE()).to_str()},
            Unsupported,
            "a tokenizer.json with",
        ),
        ({"tokenizer.huggingface.eos_token_id": ["</s>"]}, BadFile, "eos_token_id is '</s>', but there are 260 tokens"),
        ({"tokenizer.huggingface.eos_token_id": [260]}, BadFile, "eos_token_id is 260, but there are 260 tokens"),
        (
            {"tokenizer.huggingface.config": {"bos_token": 3}},
            BadFile,
            "tokenizer_config.json: bos_token must",
        ),
        ({"llama.vocab_size": 1 << 30}, BadFile, "vocab_size (config.json) is 1073741824, not a number of tokens"),
        ({"tokenizer.chat_template": 3}, BadFile, "tokenizer.chat_template must be str, not int"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], kind: type[Exception], wanted: str) -> None:
    with pytest.raises(kind) as raised:
        ModelText.from_metadata(metadata(byte_level("<s>")) | change, "toy", "folder")
    assert str(raised.value).startswith(f"folder: {wanted}")
    assert "\n" not in str(raised.value)


def test_half_a_surrogate_pair_is_the_clients_fault(folder: Path) -> None:
    with pytest.raises(BadRequest, match="surrogate"):
        ModelText.from_path(folder).tokenizer.encode("a\ud83d")
