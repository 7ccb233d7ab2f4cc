"""A copy of a GGUF file in which some things are different."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter

OWN_KEYS = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture")
TYPES = {
    str: GGUFValueType.STRING,
    int: GGUFValueType.UINT32,
    float: GGUFValueType.FLOAT32,
    bool: GGUFValueType.BOOL,
    list: GGUFValueType.ARRAY,
}


def altered(
    source: Path,
    *,
    architecture: str = "llama",
    values: Mapping[str, Any] = {},
    tensors: Mapping[str, npt.NDArray[Any] | tuple[npt.NDArray[Any], GGMLQuantizationType] | None] = {},
) -> Path:
    """Writes the copy beside `source`. `values` and `tensors` take the place of those there; None: left out."""
    reader, path = GGUFReader(source), source.with_name("altered.gguf")
    writer = GGUFWriter(path, architecture)
    for key, field in reader.fields.items():
        if key not in OWN_KEYS and key not in values:
            writer.add_key_value(key, field.contents(), field.types[0], field.types[-1])
    for key, value in values.items():
        if value is not None:
            writer.add_key_value(key, value, TYPES[type(value)])
    kept = {tensor.name: (tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    for name, tensor in {**kept, **tensors}.items():
        if tensor is not None:
            array, kind = tensor if isinstance(tensor, tuple) else (tensor, GGMLQuantizationType.F32)
            writer.add_tensor(name, np.ascontiguousarray(array), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
