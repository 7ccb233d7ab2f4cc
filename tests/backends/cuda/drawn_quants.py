"""Quantised matrices and rows drawn at random, and what the kernels for bf16 matrices make of them."""

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType
from gguf.quants import Q4_K, dequantize

from parkway.backends.cuda import linear, quantised
from parkway.backends.cuda.linear_config import PLAIN, LinearConfig
from parkway.backends.cuda.quantised import QuantMatrix
from parkway.backends.cuda.quantised_config import split_columns, splits
from parkway.backends.cuda.quantised_pack import LAYOUTS

Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]
BF16 = LinearConfig(PLAIN, 16, 16, 32, 4, 2)


def raw_rows(type_name: str, rows: int, columns: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Rows of any bits with small scales, uint8 [rows, row_bytes]."""
    kind, chance = LAYOUTS[type_name], np.random.default_rng(seed)
    blocks = chance.integers(0, 256, (rows, columns // kind.block_columns, kind.block_bytes), np.uint8)
    if type_name == "MXFP4":  # exponents, of 2^-16 … 2^15
        blocks[..., 0] = blocks[..., 0] % 32 + 112
    for at in kind.halves:
        scales = chance.standard_normal(blocks.shape[:2]).astype(np.float16) / np.float16(64)
        blocks[..., at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def decoded(type_name: str, raw: npt.NDArray[np.uint8], device: torch.device) -> torch.Tensor:
    """What GGUF's own decoder makes of them, rounded to bf16; of Q4_K what quants.h says."""
    if type_name == "Q4_K":
        quants, d, m = q4_k_parts(raw)
        values = ((quants - 8.0) * to_bf16(d) + to_bf16(8 * d - m)).astype(np.float64)  # exact
        return torch.from_numpy(to_bf16(values)).to(torch.bfloat16).to(device)
    values = np.asarray(dequantize(raw, GGMLQuantizationType[type_name]), np.float32)
    if type_name in ("Q4_0", "Q3_K"):  # quants.h makes no negative zero of what is no scale at all; no sum can tell
        values = values + 0
    return torch.from_numpy(values).to(torch.bfloat16).to(device)


def q4_k_parts(raw: npt.NDArray[np.uint8]) -> tuple[Floats, Floats, Floats]:
    """Quants, d and m of every weight d * quant - m, float32 [rows, columns]."""
    blocks = raw.reshape(-1, 144)
    halves = blocks[:, :4].copy().view(np.float16).astype(np.float32)
    both = zip(halves.T, Q4_K.get_scale_min(blocks[:, 4:16]), strict=True)
    d, m = (np.repeat(half[:, None] * small, 32, axis=1).astype(np.float32) for half, small in both)
    quants = blocks[:, 16:].reshape(-1, 4, 1, 32) >> np.array([[0], [4]], np.uint8) & 15
    rows = len(raw)
    return quants.astype(np.float32).reshape(rows, -1), d.reshape(rows, -1), m.reshape(rows, -1)


def to_bf16(values: Floats) -> npt.NDArray[np.float64]:
    """Rounded once to nearest, ties to even; for zeros and what is no subnormal number. Torch rounds float64 twice."""
    last_bit = np.ldexp(1.0, np.frexp(values)[1] - 8)
    return np.asarray(np.rint(values / last_bit) * last_bit)


def drawn(type_name: str, rows: int, columns: int, device: torch.device, seed: int = 0) -> QuantMatrix:
    return quantised.pack("drawn", type_name, raw_rows(type_name, rows, columns, seed), columns, device)


def activations(rows: int, columns: int, device: torch.device) -> torch.Tensor:
    """bf16 [rows, columns] with NaN behind every row and behind the last."""
    around = torch.full((rows + 1, columns + 8), torch.nan, dtype=torch.bfloat16, device=device)
    chance = torch.Generator(device).manual_seed(rows)
    return around[:rows, :columns].copy_(torch.randn(rows, columns, generator=chance, device=device))


def by_split(x: torch.Tensor, weight: torch.Tensor, matrices: int = 1) -> torch.Tensor:
    """x Wᵀ in fp32 by the kernel for bf16 matrices: the splits' sums, added in order."""
    total: torch.Tensor | None = None
    for columns in split_columns(weight.shape[1], splits(weight.shape[0], weight.shape[1], matrices)):
        part = weight[:, columns].contiguous()
        total = linear.linear(x[:, columns], part, BF16, residual=total, out_dtype=torch.float32)
    assert total is not None
    return total


def bits(values: torch.Tensor) -> torch.Tensor:
    return values.view(torch.int16 if values.dtype == torch.bfloat16 else torch.int32)
