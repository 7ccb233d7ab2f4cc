"""Values that quants.h makes where they aren't those of GGUF's own decoder."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from parkway.backends.cuda import nvrtc, quantised
from tests.backends.cuda import emulated
from tests.backends.cuda.drawn_quants import bits, decoded, q4_k_parts, raw_rows


def test_a_weight_of_q4_k_is_near_ggufs(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """Whatever the block's halves, if they are finite: zeros, subnormal and large ones, of either sign."""
    if device.type == "cpu":
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)
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
