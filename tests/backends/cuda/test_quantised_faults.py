"""What the emulation is for: kernels with a fault planted in them differ."""

from pathlib import Path

import pytest
import torch

from parkway.backends.cuda import nvrtc, quantised
from parkway.backends.cuda.quantised import QuantConfig
from parkway.backends.cuda.quantised_config import line
from tests.backends.cuda import emulated
from tests.backends.cuda.drawn_quants import activations, bits, by_split, decoded, drawn, raw_rows
from tests.backends.cuda.interpreted import mend

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="of the emulation")
if not torch.cuda.is_available():
    mend()


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)


FAULTS = [
    (1, "quantised.cu", "wait_for_groups<DEPTH - 2>", "wait_for_groups<DEPTH - 1>"),
    (0, "quantised.cu", "        meet_some(part + 1, GROUP * 32);\n", "        __syncwarp();\n"),
    (0, "quantised.cu", "        __syncthreads();\n        leave", "        leave"),
    (0, "quantised.cu", "(totals);\n        __syncthreads();\n", "(totals);\n"),
    (0, "quantised.cu", "int part = 1; part < splits", "int part = 2; part < splits"),
    (1, "matrix_unit.h", "wait_for_batches<1>", "wait_for_batches<2>"),
    (1, "matrix_unit.h", "wait_for_batches<0>", "wait_for_batches<1>"),
    (
        0,
        "matrix_unit.h",
        "            load_matrices(",
        "            __syncwarp(); if (threadIdx.x % 32) load_matrices(",
    ),
    (0, "matrix_unit.h", "b[step * 2], b[step * 2 + 1]", "b[0], b[1]"),
    (0, "codes.h", "step % 2 * 8, high", "step % 2 * 4, high"),
    (0, "quants.h", "0x7c007c00u", "0x7e007e00u"),
    (2, "quants.h", "high_twice(line)", "low_twice(line)"),
    (2, "quantised.cu", "wait_for_barrier(ring.full(at.slot), at.turn);", ""),
    (2, "quantised.cu", "wait_for_barrier(x.full(x_at.slot), x_at.turn);", ""),
    (2, "quantised.cu", "ring.fetch(at.before())", "ring.fetch(at.slot)"),
    (2, "rings.h", "        arrive(empty(slot));\n", ""),
    (2, "rings.h", "wait_for_barrier(empty(free.slot), free.turn);", ""),
    (2, "rings.h", "slot = 0, turn ^= 1", "slot = 0"),
]
"""Which configuration, a file, what it has, and what it has in the fault's stead."""
CONFIGS = QuantConfig(1, 4, 3), QuantConfig(1, 4, 3, 1), QuantConfig(1, 2, 3, window=2)


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, tmp_path: Path, fault: tuple[int, str, str, str]
) -> None:
    which, file, old, new = fault
    config, columns = CONFIGS[which], 9216 if which == 2 else 2048
    matrix, x = drawn("Q4_K", 40, columns, device), activations(8, columns, device)
    sound = quantised.linear(x, matrix, config)
    faulty = emulated.planted("quantised.cu", line(config, 8, "Q4_K"), file, old, new, tmp_path)
    monkeypatch.setattr(nvrtc, "kernel", lambda *_: faulty)
    differs = []
    for late in (False, True):
        monkeypatch.setattr(emulated.Kernel, "late", late)
        try:
            differs.append(not torch.equal(bits(quantised.linear(x, matrix, config)), bits(sound)))
        except RuntimeError:
            differs.append(True)
    assert any(differs)


def test_another_order_of_the_sum_is_found(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, tmp_path: Path
) -> None:
    config = QuantConfig(2, 2, 3)
    raw = raw_rows("Q4_K", 43, 1280)
    matrix, x = quantised.pack("drawn", "Q4_K", raw, 1280, device), activations(5, 1280, device)
    old, new = (
        "int step = 0; step < 2; step++)\n#pragma unroll\n                for",
        "int step = 1; step >= 0; step--)\n for",
    )
    faulty = emulated.planted("quantised.cu", line(config, 5, "Q4_K"), "matrix_unit.h", old, new, tmp_path)
    monkeypatch.setattr(nvrtc, "kernel", lambda *_: faulty)
    made = quantised.linear(x, matrix, config, out_dtype=torch.float32)
    expected = by_split(x, decoded("Q4_K", raw, device))
    assert torch.allclose(made, expected, rtol=1e-3, atol=1e-3)
    assert not torch.equal(made, expected)
