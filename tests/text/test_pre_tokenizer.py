"""How each family cuts digits and words: what ids over one vocabulary can't tell apart."""

import pytest

from parkway.text.pre_tokenizer import pre_tokenizer

TEXT = "It'S 12345  HelloWORLD!\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-2", ["It", "'", "S", " 12345", " ", " HelloWORLD", "!", "\n"]),
        ("smollm", ["It", "'", "S", " ", "1", "2", "3", "4", "5", " ", " HelloWORLD", "!", "\n"]),
        ("llama-bpe", ["It", "'S", " ", "123", "45", " ", " HelloWORLD", "!\n"]),
        ("qwen2", ["It", "'S", " ", "1", "2", "3", "4", "5", " ", " HelloWORLD", "!\n"]),
        ("tekken", ["It", "'S", " ", "1", "2", "3", "4", "5", " ", " Hello", "WORLD", "!\n"]),
        ("gpt-4o", ["It'S", " ", "123", "45", " ", " Hello", "WORLD", "!\n"]),
        ("qwen35", ["It", "'S", " ", "1", "2", "3", "4", "5", " ", " HelloWORLD", "!\n"]),
        ("bailingmoe", ["It", "'S", " ", "1", "2", "3", "4", "5", " ", " HelloWORLD", "!\n"]),
        ("bloom", ["It'S", " 12345", " ", " HelloWORLD", "!\n"]),
        ("viking", ["It'S", " ", "1", "2", "3", "4", "5", " ", " HelloWORLD", "!\n"]),
        ("falcon", ["It", "'", "S", " ", "123", "45", " ", " HelloWORLD", "!", "\n"]),
        ("deepseek-llm", ["It", "'", "S", " ", "12345", " ", " HelloWORLD", "!", "\n"]),
        ("seed-coder", ["It", "'S", " ", "1", "2", "3", "4", "5", " ", " HelloWORLD", "!", "\n"]),
        ("deepseek-coder", ["It", "'", "S", " ", "1", "2", "3", "4", "5", " ", " HelloWORLD", "!", "\n"]),
        ("deepseek-v3", ["It", "'S", " ", "123", "45", " ", " HelloWORLD", "!\n"]),
        ("", ["It", "'", "S", " ", "123", "45", " ", " HelloWORLD", "!", "\n"]),
    ],
)
def test_words(name: str, words: list[str]) -> None:
    pieces = pre_tokenizer(name, "a.gguf").build().pre_tokenize_str(TEXT)
    assert [TEXT[start:end] for _, (start, end) in pieces] == words


@pytest.mark.parametrize(
    "name",
    [
        *("llama-bpe", "smollm", "smaug-bpe", "tekken", "qwen2", "qwen35", "dbrx", "gpt-4o", "deepseek-llm"),
        *("deepseek-coder", "deepseek-v3", "deepseek-r1-qwen", "hunyuan", "hunyuan-dense", "default"),
    ],
)
def test_every_text_is_kept_whole(name: str) -> None:
    text = "a\u0301 \u3000\u00a0漢字かな한국 1234567 'S'll \n\r\n\t!?/ Ab\u01c5 \U0001f642 "
    pieces = pre_tokenizer(name, "a.gguf").build().pre_tokenize_str(text)
    assert "".join(text[start:end] for _, (start, end) in pieces) == text
