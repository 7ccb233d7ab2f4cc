"""A model folder as Hugging Face lays it out: config.json, safetensors files, a tokenizer. In GGUF's keys and names."""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from parkway.errors import BadFile, Unsupported
from parkway.weights.checkpoint import RawTensor, identity_of
from parkway.weights.hugging_face_config import FAMILIES, KEYS, architecture, is_tied, text_config, values
from parkway.weights.hugging_face_names import PREDICTING, Names
from parkway.weights.hugging_face_tensors import has_head, in_gguf_terms
from parkway.weights.safetensors import open_tensors

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


class HuggingFaceFolder:
    """A `Checkpoint`. Damage of any kind is a BadFile with one sentence; what is not built is Unsupported by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if (path / "adapter_config.json").exists():
            raise Unsupported(f"{path}: this is an adapter (LoRA), not a model; adapters are not supported")
        self._config = text_config(read_object(path / "config.json"))
        self._values = values(path / "config.json", self._config)
        self._files = _opened(path)
        family = architecture(self._config)
        predicting = _predicting(family, self._values, self._files)
        if predicting is not None:  # as llama.cpp's converter counts them
            self._values |= {f"{family}.block_count": predicting + 1, f"{family}.nextn_predict_layers": 1}
        self._names = Names(family, predicting)
        tensors = in_gguf_terms(path, family, self._names, self._files)
        if is_tied(self._config):
            tensors.pop("output.weight", None)  # some files repeat the embedding there
        elif family in FAMILIES and "output.weight" not in tensors:
            raise BadFile(path, "lm_head.weight is missing, and config.json doesn't tie it to the embedding")
        self.tensors: Mapping[str, RawTensor] = tensors

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def identity(self) -> str:
        return identity_of(self._files.values())

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """`tokenizer.huggingface.…` are the folder's own files: json (text), config (object), eos_token_id (list),
        and model (bytes) and added (object) where there is no json."""
        settings = read_object(self.path / "tokenizer_config.json", missing={})
        named = read_object(self.path / "generation_config.json", missing={}), self._config
        source = _text(self.path / "tokenizer.json")
        found: dict[str, Any] = {
            "tokenizer.huggingface.json": source,
            "tokenizer.huggingface.model": _bytes(self.path / "tokenizer.model") if source is None else None,
            "tokenizer.huggingface.added": read_object(self.path / "added_tokens.json", missing={}),
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
        return self._names.own(key)


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
        return None if (found := _bytes(path)) is None else found.decode()
    except UnicodeDecodeError as error:
        raise BadFile(path, f"not UTF-8: {error}") from error


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadFile(path, f"can't be read: {error.strerror or error}") from error


def _predicting(family: str, values: Mapping[str, Any], files: Mapping[str, RawTensor]) -> int | None:
    """The number of the prediction head's layer, which stands behind the others; None where there is none."""
    layers = values.get(f"{family}.block_count")
    known = family in PREDICTING and isinstance(layers, int) and layers > 0
    return layers if known and has_head(files) else None


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


def _listed(ids: Any) -> list[Any]:
    return [] if ids is None else ids if isinstance(ids, list) else [ids]


def _template(settings: Mapping[str, Any]) -> Any:
    """tokenizer_config.json has one template, or a list of named ones."""
    said = settings.get("chat_template")
    if not isinstance(said, list):
        return said
    named = {each.get("name"): each.get("template") for each in said if isinstance(each, dict)}
    return named.get("default")
