"""GGUF v2/v3 through the `gguf` library, memory-mapped, in one file or in several parts.

Damage of any kind is a BadFile with one sentence.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFValueType

from parkway.errors import BadFile
from parkway.weights.checkpoint import RawTensor, identity_of

MAGIC = b"GGUF"
VERSIONS = (2, 3)


_NUMBERS = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)")


class GgufFile:
    """A model, by its only file or the first of its parts, which has all the metadata.

    `tensors` are views into the mapped files; `value` and `metadata` are plain Python values.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._first = _Part(path)
        self.tensors = self._first.tensors if self._first.of == 1 else _tensors(_parts(self._first))

    def value(self, key: str, default: Any = None) -> Any:
        """The value of a metadata key as str, int, float, bool or list; `default` where the file has none."""
        return self._first.value(key, default)

    @property
    def name(self) -> str:
        return Path(_NUMBERS.sub("", self.path.name)).stem

    @property
    def identity(self) -> str:
        return identity_of(self.tensors.values())

    @cached_property
    def metadata(self) -> dict[str, Any]:
        return {key: self.value(key) for key in self._first.keys}

    def spelled(self, key: str) -> str:
        return key


class _Part:
    """One file: part `number` of `of`, counted from 1; a model in one file is its only part."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_head(path)
        try:
            self._reader = _Reader(path)
            self.tensors = {tensor.name: _raw(tensor) for tensor in self._reader.tensors}
        except IndexError as error:
            raise BadFile(path, "truncated or corrupt GGUF file: it ends inside its header") from error
        except (ValueError, KeyError, OverflowError, UnicodeDecodeError, struct.error) as error:
            raise BadFile(path, f"truncated or corrupt GGUF file: {error}") from error
        except OSError as error:
            raise BadFile(path, f"can't be read: {error.strerror or error}") from error

        self.of = max(1, self._number("split.count"))
        self.number = 1 + self._number("split.no")
        self.all_tensors = self._number("split.tensors.count")
        """Of all parts together; 0 where the file doesn't say."""

    @property
    def keys(self) -> Iterable[str]:
        return self._reader.fields

    def value(self, key: str, default: Any = None) -> Any:
        field = self._reader.fields.get(key)
        if field is None:
            return default
        try:
            return field.contents()
        except (ValueError, IndexError) as error:
            raise BadFile(self.path, f"metadata key {key} is corrupt: {error}") from error

    def _number(self, key: str) -> int:
        found = self.value(key, 0)
        if not isinstance(found, int):
            raise BadFile(self.path, f"metadata key {key} is corrupt: {found!r} is no whole number")
        return found


def _parts(first: _Part) -> Iterator[_Part]:
    """All parts in their order, each checked to be what its place says. Raises BadFile."""
    place, numbered = f"part {first.number} of {first.of}", _NUMBERS.search(first.path.name)
    if first.number != 1:
        named = f", {_NUMBERS.sub(_numbers(1, first.of), first.path.name)}" if numbered else ""
        raise BadFile(first.path, f"{place}: open the first{named}")
    if numbered is None or numbered[0] != _numbers(1, first.of):
        raise BadFile(first.path, f"{place}, so its name must end with {_numbers(1, first.of)}.gguf")
    yield first
    for number in range(2, first.of + 1):
        part = _Part(first.path.with_name(_NUMBERS.sub(_numbers(number, first.of), first.path.name)))
        if (part.number, part.of) != (number, first.of):
            raise BadFile(part.path, f"not part {number} of {first.of}, but part {part.number} of {part.of}")
        yield part


def _numbers(number: int, of: int) -> str:
    return f"-{number:05}-of-{of:05}"


def _tensors(parts: Iterable[_Part]) -> dict[str, RawTensor]:
    """Those of all parts of a model. Raises BadFile."""
    first, *others = parts
    found, owner = dict(first.tensors), dict.fromkeys(first.tensors, first)
    for part in others:
        if part.all_tensors != first.all_tensors:
            told = f"it tells of {part.all_tensors} tensors, {first.path.name} of {first.all_tensors}"
            raise BadFile(part.path, f"a part of another model: {told}")
        if twice := [name for name in part.tensors if name in found]:
            raise BadFile(part.path, f"a part of another model: {twice[0]} is in {owner[twice[0]].path.name} too")
        found |= part.tensors
        owner |= dict.fromkeys(part.tensors, part)
    if first.all_tensors not in (0, len(found)):
        raise BadFile(first.path, f"all parts together have {len(found)} tensors, not {first.all_tensors}")
    return found


def _check_head(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise BadFile(path, f"can't be read: {error.strerror or error}") from error
    if len(head) < 8:
        raise BadFile(path, f"not a GGUF file: it has only {len(head)} bytes")
    if head[:4] != MAGIC:
        raise BadFile(path, f"not a GGUF file: it begins with {head[:4]!r}, not {MAGIC!r}")
    version = int.from_bytes(head[4:8], "little")
    if version not in VERSIONS:
        raise BadFile(path, f"GGUF version {version} is not supported, only {VERSIONS}")


def _raw(tensor: Any) -> RawTensor:
    shape = tuple(int(n) for n in reversed(tensor.shape))
    rows = tensor.n_elements // shape[-1]
    raw = tensor.data.reshape(rows, -1).view(np.uint8)
    return RawTensor(tensor.name, shape, tensor.tensor_type, raw)


class _Reader(GGUFReader):
    """The library's reader, with arrays read in one go (100,000 token strings cost it seconds one by one) and
    tensor bounds checked before they are mapped, so that a truncated file is named for what it is."""

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[GGUFValueType]]:
        if GGUFValueType(raw_type) != GGUFValueType.ARRAY:
            return super()._get_field_parts(orig_offs, raw_type)
        item_type, count = struct.unpack_from("<IQ", np.asarray(self.data).data, orig_offs)
        kind, start = GGUFValueType(item_type), orig_offs + 12
        if kind == GGUFValueType.STRING:
            parts, end = self._strings(start, count)
            return end - orig_offs, parts, list(range(count)), [GGUFValueType.ARRAY, kind]
        values = self._numbers(start, kind, count)
        return 12 + values.nbytes, [values], [0], [GGUFValueType.ARRAY, kind]

    def _strings(self, start: int, count: int) -> tuple[list[Any], int]:
        view, length, parts = np.asarray(self.data).data, struct.Struct("<Q"), []
        for _ in range(count):
            end = start + 8 + length.unpack_from(view, start)[0]
            if end > len(view):
                raise ValueError(f"a string at byte {start} ends beyond the file")
            parts.append(view[start + 8 : end])
            start = end
        return parts, start

    def _numbers(self, start: int, kind: GGUFValueType, count: int) -> npt.NDArray[Any]:
        dtype = self.gguf_scalar_to_np.get(kind)
        if dtype is None:
            raise ValueError(f"an array of {kind.name} at byte {start} is not supported")
        values = np.asarray(self.data[start : start + count * np.dtype(dtype).itemsize]).view(dtype)
        if len(values) != count:
            raise ValueError(f"an array at byte {start} ends beyond the file")
        return values

    def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
        for field in fields:
            dims, raw_type, offset = field.parts[3], field.parts[4], field.parts[5]
            elements = int(np.prod([int(n) for n in dims], dtype=object))
            tensor_type = GGMLQuantizationType(int(raw_type[0]))
            block, block_bytes = GGML_QUANT_SIZES[tensor_type]
            if elements == 0 or int(dims[0]) % block:
                raise ValueError(f"tensor {field.name} has the impossible shape {dims.tolist()}")
            end = start_offs + int(offset[0]) + elements // block * block_bytes
            if end > len(self.data):
                raise ValueError(f"tensor {field.name} ends at byte {end} of a file of {len(self.data)} bytes")
        super()._build_tensors(start_offs, fields)
