"""The text side of the default model, and metadata of a toy model with a token for every byte."""

from pathlib import Path
from typing import Any

import pytest

from parkway.text import Tokenizer
from parkway.text.gguf_tokenizer import GgufTokenizer
from parkway.weights.gguf import GgufFile


def byte_characters() -> list[str]:
    """GPT-2's character for each byte, as its authors' code makes them."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    characters, others = {byte: chr(byte) for byte in printable}, 0
    for byte in range(256):
        if byte not in characters:
            characters[byte] = chr(256 + others)
            others += 1
    return [characters[byte] for byte in range(256)]


@pytest.fixture(scope="session")
def metadata(smollm2: Path) -> dict[str, Any]:
    return GgufFile(smollm2).metadata


@pytest.fixture(scope="session")
def tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    return GgufTokenizer.from_metadata(metadata)


@pytest.fixture
def toy() -> dict[str, Any]:
    """Tokens 0 to 255 are the bytes; then he, ll, hell, the word abc that no merge makes, and some that aren't text."""
    tokens = [*byte_characters(), "he", "ll", "hell", "abc", "<s>", "<|im_end|>", "<think>", "[PAD0]", "control"]
    types = [1] * 260 + [3, 3, 4, 5, 3]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": ["h e", "l l", "he ll"],
        "tokenizer.ggml.bos_token_id": tokens.index("<s>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
    }
