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
        ("seed-coder", ["It", "'S", " ", "1", "2", "3", "4", "5", " ", " HelloWORLD", "!", "\n"]),
        ("deepseek-coder", ["It", "'", "S", " ", "1", "2", "3", "4", "5", " ", " HelloWORLD", "!", "\n"]),
        ("deepseek-v3", ["It", "'S", " ", "123", "45", " ", " HelloWORLD", "!\n"]),
        ("", ["It", "'", "S", " ", "123", "45", " ", " HelloWORLD", "!", "\n"]),
    ],
)
def test_words(name: str, words: list[str]) -> None:
    pieces = pre_tokenizer(name, "a.gguf").build().pre_tokenize_str(TEXT)
    assert [TEXT[start:end] for _, (start, end) in pieces] == words
