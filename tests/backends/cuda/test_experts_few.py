"""The kernel of warps with rings of their own: bits of the plain kernel, whatever comes when; faults in it are found.

On the CPU it runs emulated, copies as early and as late as may be, on a GPU as it is.
"""

from pathlib import Path

import pytest
import torch

from parkway.backends import Experts
from parkway.backends.cuda import experts_few, nvrtc
from parkway.backends.cuda.experts_config import FEW, PLAIN, ExpertsConfig
from parkway.backends.cuda.experts_subjects import ExpertsSubject, subject
from tests.backends.cuda import emulated
from tests.backends.cuda.interpreted import mend

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
"""Of NumPy, under the interpreter: strangers hold NaN."""

MEASURE = ExpertsConfig(PLAIN, 64, 32, 64, 4, 2, 32, 64, 4, 2)


def _config(rows: int, warps: int, stages: int) -> ExpertsConfig:
    return ExpertsConfig(FEW, rows, 8, 256, warps, stages, 16, 256, warps, stages)


def _subject(device: torch.device, rows: int, *, biased: bool = False) -> ExpertsSubject:
    """Two steps and a bit of columns, outputs that no item divides, an expert that all rows have."""
    chance = torch.Generator(device).manual_seed(11)
    how = Experts(5, 2, None, None, None, None, "chosen", True, "clamped" if biased else "silu")
    return subject(chance, (), how, rows=rows, width=528, ffn=280, biased=biased)


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    if not ON_GPU:
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)


@pytest.mark.parametrize("late", [True] if ON_GPU else [False, True])
@pytest.mark.parametrize(("rows", "biased"), [(1, False), (11, True)])
@pytest.mark.parametrize("config", [_config(1, 3, 4), _config(2, 2, 3), _config(4, 1, 2), _config(8, 5, 3)])
def test_it_has_the_bits_of_the_plain_kernel(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, config: ExpertsConfig, rows: int, biased: bool, late: bool
) -> None:
    monkeypatch.setattr(emulated.Kernel, "late", late)
    drawn = _subject(device, rows, biased=biased)
    made, expected = (drawn.output(each, slice(0, rows)) for each in (config, MEASURE))
    assert expected.count_nonzero() > rows * 400
    assert torch.equal(made, expected)


FAULTS = [
    ("experts_few.cu", "wait_for_groups<DEPTH - 2>", "wait_for_groups<DEPTH - 1>"),
    ("experts_few.cu", "slot == 0 ? DEPTH - 1 : slot - 1", "slot"),
    ("experts_few.cu", "if (column == TILE_COLUMNS)\n            look_up(p);", ""),
    (
        "experts_few.cu",
        "            next = Item(p, number + stride, bands);",
        "            next = Item(p, number, bands);",
    ),
    ("experts_few.cu", "mine < last ? mine : last", "0"),
    ("experts_few.cu", "lane % 16 * X_PITCH", "lane % 8 * X_PITCH"),
    ("matrix_unit.h", "b[step * 2], b[step * 2 + 1]", "b[0], b[1]"),
    ("matrix_unit.h", "int step = 0; step < 2; step++", "int step = 1; step >= 0; step--"),
]


@pytest.mark.skipif(ON_GPU, reason="of the emulation")
@pytest.mark.parametrize(("file", "old", "new"), FAULTS)
def test_faults_are_found(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, tmp_path: Path, file: str, old: str, new: str
) -> None:
    drawn, config = _subject(device, 7), _config(4, 2, 3)
    sound = drawn.output(config, slice(0, 7))
    faulty = {
        gated: emulated.planted(
            experts_few.SOURCE, experts_few.line(4, config.up, gated=gated), file, old, new, tmp_path
        )
        for gated in (False, True)
    }
    monkeypatch.setattr(nvrtc, "kernel", lambda _, line: faulty["true" in line])
    differs = []
    for late in (False, True):
        monkeypatch.setattr(emulated.Kernel, "late", late)
        try:
            differs.append(not torch.equal(drawn.output(config, slice(0, 7)), sound))
        except RuntimeError:
            differs.append(True)
    assert any(differs)
