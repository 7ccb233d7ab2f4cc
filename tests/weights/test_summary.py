"""What is told about a model file, from files made in memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from parkway.weights.checkpoint import RawTensor
from parkway.weights.summary import TypeTotal, facts, template_name, type_totals


class File:
    path = Path("model.gguf")
    name = identity = "model"

    def __init__(self, **values: Any) -> None:
        self.metadata = self.values = values
        self.tensors: Mapping[str, RawTensor] = {}

    def value(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def spelled(self, key: str) -> str:
        return key


def tensor(name: str, kind: GGMLQuantizationType, rows: int, row_bytes: int) -> RawTensor:
    return RawTensor(name, (rows, 32), kind, np.zeros((rows, row_bytes), np.uint8))


def test_a_file_that_says_little() -> None:
    assert facts(File()) == {"architecture": "unknown", "tokenizer": "no", "chat template": "no"}


def test_sizes_are_those_of_the_files_own_architecture() -> None:
    values = {"general.architecture": "qwen3", "qwen3.block_count": 28, "llama.block_count": 1}
    told = facts(File(**values, **{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"]}))
    assert told["layers"] == "28"
    assert told["vocabulary"] == "2"
    assert told["tokenizer"] == "gpt2"


def test_totals_by_type_most_bytes_first() -> None:
    tensors = [
        tensor("a", GGMLQuantizationType.F32, 1, 128),
        tensor("b", GGMLQuantizationType.Q4_1, 10, 20),
        tensor("c", GGMLQuantizationType.Q4_1, 5, 20),
    ]
    assert type_totals(tensors) == [TypeTotal("Q4_1", 2, 480, 300), TypeTotal("F32", 1, 32, 128)]


@pytest.mark.parametrize(
    ("source", "name"),
    [("{{ '<|im_start|>' }}", "chatml"), ("{{ '<|start_header_id|>' }}", "llama3"), ("{{ messages }}", "own")],
)
def test_template_name(source: str, name: str) -> None:
    assert template_name(source) == name
