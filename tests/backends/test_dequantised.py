"""Packed weights hold exactly the values of the file: row by row what the gguf library decodes, bit for bit."""

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quant_shape_to_byte_shape

from parkway.backends.cpu.pack import pack_matrix
from parkway.backends.quant import SUPPORTED
from parkway.backends.reference import ReferenceStep
from parkway.errors import Unsupported
from tests.backends.rig import ISAS, Float32s, Rig, same_bits

SCALES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}
"""Where each block has fp16 numbers."""
EXPONENTS = {"F16": 0x7C, "BF16": 0x7F, "F32": 0x7F}
"""Bits of the exponent in the high byte of a number."""


def row_bytes(kind: str, columns: int) -> int:
    return int(quant_shape_to_byte_shape((columns,), GGMLQuantizationType[kind])[0])


def random_bytes(kind: str, rows: int, columns: int) -> npt.NDArray[np.uint8]:
    """Rows as a file may have them: every bit random, so exponents of every size, but no infinities and no NaN."""
    random = np.random.default_rng(rows * columns)
    raw = random.integers(0, 256, (rows, row_bytes(kind, columns)), np.uint8)
    block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    blocks = raw.reshape(-1, block_bytes)
    for at in SCALES.get(kind, ()):
        _keep_finite(blocks[:, at : at + 2], 0x7C)
    if kind in EXPONENTS:
        _keep_finite(blocks, EXPONENTS[kind])
    return raw


def _keep_finite(numbers: npt.NDArray[np.uint8], exponent: int) -> None:
    """Takes the lowest exponent bit of the high byte out where all of that byte's exponent bits are set."""
    high = numbers[:, -1]
    high[(high & exponent) == exponent] &= 0xFB if exponent == 0x7C else 0xFE


def embedded(kind: str, raw: npt.NDArray[np.uint8], columns: int, isa: str) -> Float32s:
    table = pack_matrix("drawn", kind, raw, columns)
    rig = Rig(lambda recorder: [recorder.embed(table)], isa=isa)
    return rig.run(ReferenceStep(range(len(raw)), range(len(raw)), [(0,)] * len(raw), ()))[0]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", SUPPORTED)
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (15, 3), (16, 2), (17, 11), (50, 1)])
def test_packed_rows_are_the_librarys_values(kind: str, isa: str, rows: int, blocks: int) -> None:
    columns = blocks * (256 if kind.endswith("K") else 32)
    raw = random_bytes(kind, rows, columns)
    wanted = dequantize(raw, GGMLQuantizationType[kind])
    assert np.isfinite(wanted).all()
    assert same_bits(embedded(kind, raw, columns, isa), wanted)


def test_one_changed_bit_is_found() -> None:
    raw = random_bytes("Q4_0", 17, 96)
    wanted = dequantize(raw, GGMLQuantizationType.Q4_0)
    raw[16, 5] ^= 1
    assert not same_bits(embedded("Q4_0", raw, 96, ISAS[-1]), wanted)


def test_a_type_without_kernels_names_the_tensor() -> None:
    with pytest.raises(Unsupported, match=r"^tensor blk\.3\.ffn_up\.weight has type Q5_K; supported are Q4_0, "):
        pack_matrix("blk.3.ffn_up.weight", "Q5_K", np.zeros((2, 176), np.uint8), 256)


def test_rows_that_no_kernel_can_take_name_the_tensor() -> None:
    with pytest.raises(Unsupported, match=r"^tensor output\.weight has rows of 40 values; the kernels need a multiple"):
        pack_matrix("output.weight", "F32", np.zeros((2, 160), np.uint8), 40)
