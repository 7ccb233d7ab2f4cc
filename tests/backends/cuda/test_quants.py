"""Values that quants.h makes: where they aren't those of GGUF's own decoder, and of every code where it is a name."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from parkway.backends.cuda import nvrtc, quantised
from tests.backends.cuda import emulated
from tests.backends.cuda.drawn_quants import bits, decoded, q4_k_parts, raw_rows


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    if device.type == "cpu":
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)


def test_a_weight_of_q4_k_is_near_ggufs(device: torch.device) -> None:
    """Whatever the block's halves, if they are finite: zeros, subnormal and large ones, of either sign."""
    raw, chance = raw_rows("Q4_K", 24, 2048), np.random.default_rng(1)
    halves = chance.integers(0, 0x7C00, (24, 8, 2), np.uint16) | chance.integers(0, 2, (24, 8, 2), np.uint16) << 15
    halves[:2] = [0, 0x8000]
    halves[2:4] &= 0x83FF
    raw.reshape(24, 8, 144)[..., :4] = halves.view(np.uint8)
    out = torch.empty((24, 2048), dtype=torch.bfloat16, device=device)
    quantised.dequantise(quantised.pack("drawn", "Q4_K", raw, 2048, device), out)
    assert torch.equal(bits(out), bits(decoded("Q4_K", raw, device)))
    quants, d, m = q4_k_parts(raw)
    assert np.array_equal(d * quants - m, dequantize(raw, GGMLQuantizationType.Q4_K))
    quants, d, m, made = (part.astype(np.float64) for part in (quants, d, m, out.float().cpu().numpy()))
    bound = 2.0**-8 * (abs((quants - 8) * d) + abs(8 * d - m) + abs(made))
    assert (abs(made - (d * quants - m)) <= bound).all()


def test_every_number_of_mxfp4_with_every_exponent(device: torch.device) -> None:
    """Subnormal, infinite ones and zeros too: as bf16 they are what GGUF's decoder makes of them."""
    raw = np.zeros((256, 34), np.uint8)
    raw[:, 0], raw[:, 17] = np.arange(256), np.arange(256)[::-1]
    raw[:, 1:17] = raw[:, 18:] = np.arange(16) * 17
    out = torch.empty((256, 64), dtype=torch.bfloat16, device=device)
    quantised.dequantise(quantised.pack("drawn", "MXFP4", raw, 64, device), out)
    with np.errstate(over="ignore"):
        exact = torch.from_numpy(dequantize(raw, GGMLQuantizationType.MXFP4))
    assert torch.equal(exact.to(torch.bfloat16).float(), exact)
    assert torch.equal(bits(out.cpu()), bits(exact.to(torch.bfloat16)))


@pytest.mark.parametrize("scale", [1.0, -3.14, 6e-8])
def test_every_name_of_iq4(device: torch.device, scale: float) -> None:
    raw = np.zeros((1, 18), np.uint8)
    raw[0, :2], raw[0, 2:] = np.array([scale], np.float16).view(np.uint8), np.arange(16) * 17
    out = torch.empty((1, 32), dtype=torch.bfloat16, device=device)
    quantised.dequantise(quantised.pack("drawn", "IQ4_NL", raw, 32, device), out)
    exact = torch.from_numpy(dequantize(raw, GGMLQuantizationType.IQ4_NL)).to(torch.bfloat16)
    assert len(exact.unique()) == 16
    assert torch.equal(bits(out.cpu()), bits(exact))
