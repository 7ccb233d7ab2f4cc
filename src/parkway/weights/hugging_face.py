"""A model folder as Hugging Face lays it out: config.json, safetensors files, a tokenizer. In GGUF's keys and names."""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from parkway.errors import BadFile
from parkway.weights.checkpoint import RawTensor, identity_of
from parkway.weights.hugging_face_config import FAMILIES, KEYS, architecture, values
from parkway.weights.safetensors import open_tensors

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PLACES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GGUF_PLACES = {theirs: ours for ours, theirs in _PLACES.items()}
_GGUF_PARTS = {theirs: ours for ours, theirs in _PARTS.items()}


class HuggingFaceFolder:
    """A `Checkpoint`. Damage of any kind is a BadFile with one sentence; what is not built is Unsupported by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._config = read_object(path / "config.json")
        self._values = values(path / "config.json", self._config)
        tensors = {_gguf_name(name): tensor for name, tensor in _opened(path).items()}
        if self._config.get("tie_word_embeddings"):
            tensors.pop("output.weight", None)  # some files repeat the embedding there
        elif architecture(self._config) in FAMILIES and "output.weight" not in tensors:
            raise BadFile(path, "lm_head.weight is missing, and config.json doesn't tie it to the embedding")
        self.tensors: Mapping[str, RawTensor] = tensors

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def identity(self) -> str:
        return identity_of(self.tensors.values())

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """`tokenizer.huggingface.…` are the folder's own files: json (text), config (object), eos_token_id (list)."""
        settings = read_object(self.path / "tokenizer_config.json", missing={})
        named = read_object(self.path / "generation_config.json", missing={}), self._config
        found: dict[str, Any] = {
            "tokenizer.huggingface.json": _text(self.path / "tokenizer.json"),
            "tokenizer.huggingface.config": settings,
            "tokenizer.huggingface.eos_token_id": [i for said in named for i in _listed(said.get("eos_token_id"))],
        }
        if template := _text(self.path / "chat_template.jinja") or _template(settings):
            found["tokenizer.chat_template"] = template
        return self._values | found

    def value(self, key: str, default: Any = None) -> Any:
        known = self.metadata if key.startswith("tokenizer.") else self._values
        return known.get(key, default)

    def spelled(self, key: str) -> str:
        prefix = f"{architecture(self._config)}."
        if key.startswith(prefix):
            ours = key.removeprefix(prefix)
            return next((f"{theirs} (config.json)" for theirs, known in KEYS.items() if known == ours), key)
        return _own_name(key)


def read_object(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object in a JSON file; `missing` where there is no file. Raises BadFile."""
    text = _text(path)
    if text is None:
        if missing is None:
            raise BadFile(path, "can't be read: No such file or directory")
        return missing
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFile(path, f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadFile(path, f"holds {type(value).__name__}, not an object")
    return value


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadFile(path, f"can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadFile(path, f"not UTF-8: {error}") from error


def _opened(path: Path) -> dict[str, RawTensor]:
    """All tensors of the folder under their own names."""
    if (path / _WEIGHTS).exists():
        return open_tensors(path / _WEIGHTS)
    if not (path / _INDEX).exists():
        raise BadFile(path, f"there is neither {_WEIGHTS} nor {_INDEX}")
    places = _places(path / _INDEX)
    found: dict[str, RawTensor] = {}
    for file in sorted(set(places.values())):
        if not (path / file).exists():
            raise BadFile(path, f"{file} is missing, which {_INDEX} names")
        found |= open_tensors(path / file)
    for name, file in places.items():
        if name not in found:
            raise BadFile(path / file, f"tensor {name} is missing, which {_INDEX} places there")
    return {name: found[name] for name in places}


def _places(index: Path) -> dict[str, str]:
    """Tensor → file, as the index says."""
    places = read_object(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise BadFile(index, "has no weight_map")
    for file in places.values():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
            raise BadFile(index, f"places a tensor in {file!r}, which is no safetensors file of this folder")
    return places


def _gguf_name(name: str) -> str:
    """GGUF's name of a tensor; its own where GGUF has none."""
    stem, _, kind = name.rpartition(".")
    if stem in _GGUF_PLACES:
        return f"{_GGUF_PLACES[stem]}.{kind}"
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem)
    if found and found[2] in _GGUF_PARTS:
        return f"blk.{found[1]}.{_GGUF_PARTS[found[2]]}.{kind}"
    return name


def _own_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _PLACES:
        return f"{_PLACES[stem]}.{kind}"
    found = re.fullmatch(r"blk\.(\d+)\.(.+)", stem)
    return f"model.layers.{found[1]}.{_PARTS[found[2]]}.{kind}" if found and found[2] in _PARTS else name


def _listed(ids: Any) -> list[Any]:
    return [] if ids is None else ids if isinstance(ids, list) else [ids]


def _template(settings: Mapping[str, Any]) -> Any:
    """tokenizer_config.json has one template, or a list of named ones."""
    said = settings.get("chat_template")
    if not isinstance(said, list):
        return said
    named = {each.get("name"): each.get("template") for each in said if isinstance(each, dict)}
    return named.get("default")
