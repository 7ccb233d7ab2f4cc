"""Packed weights hold exactly the values of the file: row by row what the gguf library decodes, bit for bit."""

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quant_shape_to_byte_shape

from parkway.backends.cpu.pack import pack_matrix
from parkway.backends.quant import QUANTISED, SUPPORTED, block_columns
from parkway.backends.reference import ReferenceStep
from parkway.errors import Unsupported
from tests.backends.rig import ISAS, Float32s, Rig, same_bits

HALVES = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q6_K": (208,),
}
"""Where each block has fp16 numbers."""
SCALES = {
    "Q2_K": (0, 16),
    "Q3_K": (96, 108),
    "Q4_K": (4, 16),
    "Q5_K": (4, 16),
    "Q6_K": (192, 208),
    "IQ4_XS": (2, 8),
    "MXFP4": (0, 1),
}
"""Where it has other scales."""
EXPONENTS = {"F16": 0x7C, "BF16": 0x7F, "F32": 0x7F}
"""Bits of the exponent in the high byte of a number."""
FINITE_MXFP4 = 253
"""Exponents of MXFP4 whose values are all finite in float32."""


def row_bytes(kind: str, columns: int) -> int:
    return int(quant_shape_to_byte_shape((columns,), GGMLQuantizationType[kind])[0])


def random_bytes(kind: str, rows: int, columns: int) -> npt.NDArray[np.uint8]:
    """Rows as a file may have them: every bit random, so exponents of every size, but no infinities and no NaN."""
    random = np.random.default_rng(rows * columns)
    raw = random.integers(0, 256, (rows, row_bytes(kind, columns)), np.uint8)
    block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    blocks = raw.reshape(-1, block_bytes)
    for at in HALVES.get(kind, ()):
        _keep_finite(blocks[:, at : at + 2], 0x7C)
    if kind in EXPONENTS:
        _keep_finite(blocks, EXPONENTS[kind])
    if kind == "MXFP4":
        blocks[:, 0] %= FINITE_MXFP4
    return raw


def _keep_finite(numbers: npt.NDArray[np.uint8], exponent: int) -> None:
    """Takes the lowest exponent bit of the high byte out where all of that byte's exponent bits are set."""
    high = numbers[:, -1]
    high[(high & exponent) == exponent] &= 0xFB if exponent == 0x7C else 0xFE


def embedded(kind: str, raw: npt.NDArray[np.uint8], columns: int, isa: str) -> Float32s:
    table = pack_matrix("drawn", kind, raw, columns)
    rig = Rig(lambda recorder: [recorder.embed(table)], isa=isa)
    return rig.run(ReferenceStep(range(len(raw)), range(len(raw)), [(0,)] * len(raw), ()))[0]


def multiplied(kind: str, raw: npt.NDArray[np.uint8], x: Float32s, isa: str) -> Float32s:
    """Rows of x times the packed matrix, with int8 activations."""
    matrix = pack_matrix("drawn", kind, raw, x.shape[1])
    rows = pack_matrix("rows", "F32", x.view(np.uint8), x.shape[1])
    rig = Rig(lambda recorder: recorder.linear(recorder.embed(rows), (matrix,)), isa=isa, activations="int8")
    return rig.run(ReferenceStep(range(len(x)), range(len(x)), [(0,)] * len(x), ()))[0]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", SUPPORTED)
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (15, 3), (16, 2), (17, 11), (50, 1)])
def test_packed_rows_are_the_librarys_values(kind: str, isa: str, rows: int, blocks: int) -> None:
    columns = blocks * max(32, block_columns(kind))
    assert_packed_is_decoded(kind, random_bytes(kind, rows, columns), columns, isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", SCALES)
def test_every_byte_of_scales_has_been_every_value(kind: str, isa: str) -> None:
    rows, columns = 43, 6 * block_columns(kind)
    raw = random_bytes(kind, rows, columns)
    blocks = raw.reshape(rows * 6, -1)
    for at in range(*SCALES[kind]):
        blocks[:, at] = (np.arange(len(blocks)) + 37 * at) % (FINITE_MXFP4 if kind == "MXFP4" else 256)
    assert_packed_is_decoded(kind, raw, columns, isa)


def assert_packed_is_decoded(kind: str, raw: npt.NDArray[np.uint8], columns: int, isa: str) -> None:
    wanted = dequantize(raw, GGMLQuantizationType[kind])
    assert np.isfinite(wanted).all()
    assert same_bits(embedded(kind, raw, columns, isa), wanted)


@pytest.mark.parametrize("kind", QUANTISED)
def test_products_of_extremes_are_exact(kind: str) -> None:
    """Blocks and activations at both ends of their range: no instruction set lets a sum saturate."""
    columns = block_columns(kind)
    raw = random_bytes(kind, 80, columns)
    raw[:16], raw[16:32], raw[32:48], raw[48:64] = 0xFF, 0, 0x80, 0x7F
    blocks = raw.reshape(-1, GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1])
    for at in HALVES.get(kind, ()):
        blocks[:, at : at + 2] = np.array([1], np.float16).view(np.uint8)
    if kind == "MXFP4":
        blocks[:, 0] = 128
    x = np.zeros((3, columns), np.float32)
    x[:, -32:] = 127  # so few that float32 has every sum
    x[1], x[2, ::2] = -x[1], -x[2, ::2]
    wanted = x.astype(np.float64) @ dequantize(raw, GGMLQuantizationType[kind]).astype(np.float64).T
    for isa in ISAS:
        assert np.array_equal(multiplied(kind, raw, x, isa), wanted), isa


def test_one_changed_bit_is_found() -> None:
    raw = random_bytes("Q4_0", 17, 96)
    wanted = dequantize(raw, GGMLQuantizationType.Q4_0)
    raw[16, 5] ^= 1
    assert not same_bits(embedded("Q4_0", raw, 96, ISAS[-1]), wanted)


@pytest.mark.parametrize("kind", sorted({kind.name for kind in GGMLQuantizationType} - set(SUPPORTED)))
def test_a_type_without_kernels_names_the_tensor(kind: str) -> None:
    with pytest.raises(Unsupported, match=rf"^tensor blk\.3\.ffn_up\.weight has type {kind}; supported are Q4_0, "):
        pack_matrix("blk.3.ffn_up.weight", kind, np.zeros((2, 176), np.uint8), 256)


@pytest.mark.parametrize(
    ("kind", "columns", "multiple"), [("F32", 40, 32), ("Q5_1", 48, 32), ("MXFP4", 8, 32), ("Q3_K", 288, 256)]
)
def test_rows_that_no_kernel_can_take_name_the_tensor(kind: str, columns: int, multiple: int) -> None:
    wanted = f"tensor output.weight has rows of {columns} values; the kernels for {kind} need a multiple of {multiple}"
    with pytest.raises(Unsupported, match=f"^{wanted}$"):
        pack_matrix("output.weight", kind, np.zeros((2, 160), np.uint8), columns)
