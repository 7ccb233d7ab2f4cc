"""The block formats of GGUF that are loaded, by the library's own tables; plain decoding is the library's too."""

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from parkway.errors import Unsupported

QUANTISED = ("Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K")
"""Types that the CPU multiplies as integers with int8 activations; the others always with float ones."""
SUPPORTED = (*QUANTISED, "F16", "BF16", "F32")


def check_type(name: str, type_name: str) -> None:
    """Raises Unsupported naming the tensor unless its type is one that is loaded."""
    if type_name not in SUPPORTED:
        raise Unsupported(f"tensor {name} has type {type_name}; supported are {', '.join(SUPPORTED)}")


def decode(name: str, type_name: str, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Raw rows uint8 [rows, row_bytes] → float32 [rows, columns]. The specification of every packed layout.

    Raises Unsupported naming the tensor.
    """
    check_type(name, type_name)
    kind = GGMLQuantizationType[type_name]
    if kind == GGMLQuantizationType.F32:
        return raw.view(np.float32)
    return np.asarray(dequantize(raw, kind), dtype=np.float32)
