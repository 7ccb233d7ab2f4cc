"""The block formats of GGUF that are loaded, by the library's own tables; plain decoding is the library's too."""

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from parkway.errors import Unsupported

QUANTISED = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ4_NL", "IQ4_XS", "MXFP4"),
)
"""Types that the CPU multiplies as integers with int8 activations; the others always with float ones."""
SUPPORTED = (*QUANTISED, "F16", "BF16", "F32")
"""What the reference and the CPU know. A backend that has kernels for fewer of them refuses the others itself."""


def check_type(name: str, type_name: str) -> None:
    """Raises Unsupported naming the tensor unless its type is one that is loaded."""
    if type_name not in SUPPORTED:
        raise Unsupported(f"tensor {name} has type {type_name}; supported are {', '.join(SUPPORTED)}")


def block_columns(type_name: str) -> int:
    """How many neighbouring values of a row a file of this type keeps together."""
    return int(GGML_QUANT_SIZES[GGMLQuantizationType[type_name]][0])


def decode(name: str, type_name: str, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Raw rows uint8 [rows, row_bytes] → float32 [rows, columns]. The specification of every packed layout.

    Raises Unsupported naming the tensor.
    """
    check_type(name, type_name)
    kind = GGMLQuantizationType[type_name]
    if kind == GGMLQuantizationType.F32:
        return raw.view(np.float32)
    return np.asarray(dequantize(raw, kind), dtype=np.float32)
