"""What `parkway inspect` tells about a model file: its facts and how many bytes each tensor type takes."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gguf import GGML_QUANT_SIZES

from parkway.weights.checkpoint import Checkpoint, RawTensor

_TEMPLATE_MARKS = (
    ("<|im_start|>", "chatml"),
    ("<|start_header_id|>", "llama3"),
    ("<start_of_turn>", "gemma"),
    ("<|start_of_role|>", "granite"),
    ("<|channel|>", "harmony"),
    ("<|end|>", "phi3"),
    ("[INST]", "mistral"),
    ("<|user|>", "zephyr"),
)


@dataclass(frozen=True, slots=True)
class TypeTotal:
    """All tensors of one type in a file."""

    type: str
    tensors: int
    elements: int
    total_bytes: int


def facts(file: Checkpoint) -> dict[str, str]:
    """Name → value as a person reads it, in the order to show. What the file doesn't say is left out."""
    architecture = str(file.value("general.architecture", "unknown"))
    sizes = {
        "layers": "block_count",
        "context": "context_length",
        "embedding": "embedding_length",
        "feed forward": "feed_forward_length",
        "heads": "attention.head_count",
        "KV heads": "attention.head_count_kv",
    }
    found: dict[str, Any] = {"name": file.value("general.name"), "architecture": architecture}
    found |= {label: file.value(f"{architecture}.{key}") for label, key in sizes.items()}
    behind = file.value(f"{architecture}.nextn_predict_layers")
    if isinstance(found["layers"], int) and isinstance(behind, int):  # of a prediction head, and told with it
        found["layers"] -= behind
    found |= {"vocabulary": _vocabulary(file), "tokenizer": _tokenizer(file), "chat template": _template(file)}
    return {label: str(value) for label, value in found.items() if value is not None}


def type_totals(tensors: Iterable[RawTensor]) -> list[TypeTotal]:
    """One row per tensor type, most bytes first."""
    by_type: dict[str, list[RawTensor]] = defaultdict(list)
    for tensor in tensors:
        by_type[tensor.type.name].append(tensor)
    totals = [
        TypeTotal(name, len(same), sum(math.prod(t.shape) for t in same), sum(map(_bytes, same)))
        for name, same in by_type.items()
    ]
    return sorted(totals, key=lambda total: (-total.total_bytes, total.type))


def template_name(source: str) -> str:
    """The family of a chat template, told by its marks as llama.cpp does; "own" if it is none of the known ones."""
    return next((name for mark, name in _TEMPLATE_MARKS if mark in source), "own")


def _bytes(tensor: RawTensor) -> int:
    block, block_bytes = GGML_QUANT_SIZES[tensor.type]
    return math.prod(tensor.shape) // block * block_bytes


def _vocabulary(file: Checkpoint) -> int | None:
    tokens = file.value("tokenizer.ggml.tokens")
    return file.value(f"{file.value('general.architecture')}.vocab_size") if tokens is None else len(tokens)


def _tokenizer(file: Checkpoint) -> str:
    model = file.value("tokenizer.ggml.model")
    if model is None:
        files = {"tokenizer.json": "json", "tokenizer.model": "model"}
        return next((name for name, key in files.items() if file.value(f"tokenizer.huggingface.{key}")), "no")
    splitter = file.value("tokenizer.ggml.pre")
    return model if splitter is None else f"{model}, pre-tokenizer {splitter}"


def _template(file: Checkpoint) -> str:
    source = file.value("tokenizer.chat_template")
    return "no" if source is None else f"yes, {template_name(source)}"
