"""A Hugging Face folder's tensors as llama.cpp's converter would write them: names, what is added, what is split."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType

from parkway.errors import BadFile, Unsupported
from parkway.weights.checkpoint import MadeTensor, RawTensor
from parkway.weights.derived import all_of, mapped, rows_of, shaped
from parkway.weights.hugging_face_names import Names

logger = logging.getLogger(__name__)

Named = Iterator[tuple[str, RawTensor]]
_TEXT = re.compile(r"model\.language_model\.|language_model\.model\.|language_model\.(?=lm_head\.)")
_HEAD = re.compile(r"^(model\.)?mtp\.")
_OTHER_SENSES = re.compile(r"(model\.)?(visual|vision_tower|vision_model|multi_modal_projector|audio_tower)\.")
_FUSED = re.compile(r"mlp\.experts\.(gate_up|down)_proj(?:\.weight)?(_bias|_blocks|_scales)?")
_ONE_IS_ADDED = ("gemma2", "gemma3", "qwen3next", "qwen35", "qwen35moe")
"""Families whose norms multiply by 1 + weight, but for the one behind a delta net."""


def in_gguf_terms(path: Path, family: str, names: Names, files: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    """By GGUF's names. Raises Unsupported for an adapter's tensors, BadFile for shapes that can't be."""
    found: dict[str, RawTensor] = {}
    for name, tensor in _text_part(path, files).items():
        layer, part = names.in_layer(name) or ("", "")
        if fused := _FUSED.fullmatch(part):
            found.update(_experts(path, family, layer, fused[1], fused[2] or "", files, tensor))
        else:
            ours = names.gguf(name)
            found[ours] = _as_gguf_has_it(family, ours, tensor)
    return found


def _text_part(path: Path, files: Mapping[str, RawTensor]) -> dict[str, RawTensor]:
    """Without what is for images and sound."""
    if adapted := [name for name in files if "lora_" in name]:
        raise Unsupported(f"{path}: tensor {adapted[0]} belongs to an adapter (LoRA), which is not supported")
    kept = {_text_name(name): tensor for name, tensor in files.items() if not _OTHER_SENSES.match(name)}
    if len(kept) < len(files):
        logger.info("%s: %d tensors for images or sound are not used", path, len(files) - len(kept))
    return kept


def has_head(files: Iterable[str]) -> bool:
    """Whether there are tensors of a prediction head among these."""
    return any(_HEAD.match(_text_name(name)) for name in files)


def _text_name(name: str) -> str:
    found = _TEXT.match(name)
    if found and not name[found.end() :].startswith("lm_head."):
        name = f"model.{name[found.end() :]}"
    elif found:
        name = name[found.end() :]
    return _HEAD.sub("mtp.", name, count=1)


def _as_gguf_has_it(family: str, name: str, tensor: RawTensor) -> RawTensor:
    if name.endswith(".ssm_a"):
        return mapped(tensor, lambda values: -np.exp(values))
    if name.endswith(".ssm_conv1d.weight") and len(tensor.shape) == 3:
        return shaped(tensor, tensor.shape[0], tensor.shape[2])
    if family in _ONE_IS_ADDED and name.endswith("norm.weight") and not name.endswith("ssm_norm.weight"):
        return mapped(tensor, lambda values: values + np.float32(1))
    return tensor


def _experts(
    path: Path, family: str, layer: str, part: str, kind: str, files: Mapping[str, RawTensor], tensor: RawTensor
) -> Named:
    """All experts' matrices, or biases, of one tensor."""
    if kind == "_scales":
        return
    wanted = {"_bias": 2, "_blocks": 4}.get(kind, 3)
    if len(tensor.shape) != wanted or (part == "gate_up" and tensor.shape[2 if _is_turned(family, kind) else 1] % 2):
        raise BadFile(path, f"tensor {tensor.name} has the impossible shape {tensor.shape}")
    if kind == "_blocks":
        each = _from_mxfp4(path, tensor, files.get(tensor.name.removesuffix("blocks") + "scales"))
    else:
        each = all_of(tensor)
    each = [_turned(expert) for expert in each] if _is_turned(family, kind) else each
    what = "bias" if kind == "_bias" else "weight"
    for number, expert in enumerate(each):
        for name, one in _parted(part, expert, interleaved=family == "gpt-oss"):
            yield f"blk.{layer}.ffn_{name}_exps.{number}.{what}", one


def _parted(part: str, expert: RawTensor, *, interleaved: bool) -> Named:
    rows = expert.shape[0]
    if part == "down":
        yield "down", expert
        return
    yield "gate", rows_of(expert, slice(0, rows, 2) if interleaved else slice(0, rows // 2))
    yield "up", rows_of(expert, slice(1, rows, 2) if interleaved else slice(rows // 2, rows))


def _is_turned(family: str, kind: str) -> bool:
    """gpt-oss keeps experts of floats as [inputs, outputs]."""
    return family == "gpt-oss" and not kind


def _turned(tensor: RawTensor) -> RawTensor:
    """A matrix of floats, the other way round."""
    rows, columns = tensor.shape

    def make() -> npt.NDArray[np.uint8]:
        items = tensor.raw.reshape(rows, columns, -1).swapaxes(0, 1)
        return np.ascontiguousarray(items).reshape(columns, -1)

    return MadeTensor(tensor.name, (columns, rows), tensor.type, make)


def _from_mxfp4(path: Path, blocks: RawTensor, scales: RawTensor | None) -> list[RawTensor]:
    """Codes [experts, rows, blocks, 16], two neighbours a byte, and scales [experts, rows, blocks] → GGUF's blocks: a
    scale, then 16 bytes, each of a code of the first half and the one 16 behind it."""
    experts, rows, count, _ = blocks.shape
    if scales is None or scales.shape != (experts, rows, count) or blocks.shape[3] != 16:
        raise BadFile(path, f"tensor {blocks.name} has shape {blocks.shape} and no scales that fit")

    def expert(number: int) -> RawTensor:
        def make() -> npt.NDArray[np.uint8]:
            pairs = blocks.raw.reshape(blocks.shape)[number]
            codes = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(rows, count, 32)
            packed = codes[..., :16] | codes[..., 16:] << 4
            scale = scales.raw.reshape(scales.shape)[number][..., None]
            return np.concatenate([scale, packed], axis=-1).reshape(rows, -1)

        return MadeTensor(blocks.name, (rows, 32 * count), GGMLQuantizationType.MXFP4, make)

    return [expert(number) for number in range(experts)]
