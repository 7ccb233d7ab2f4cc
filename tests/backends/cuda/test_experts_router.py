"""A mixture's router: values against float64, a row alone against a row among others; faults in the kernel are found.

On the CPU it runs emulated, on a GPU as it is.
"""

from pathlib import Path

import pytest
import torch

from parkway.backends.bit_check import Verdict, check
from parkway.backends.cuda import experts_router, nvrtc
from parkway.backends.cuda.chooser import Chooser
from parkway.backends.cuda.device import Device
from parkway.backends.cuda.experts import ExactExperts
from parkway.backends.cuda.experts_quantised import Rooms
from parkway.backends.cuda.experts_router import norm_and_route
from parkway.backends.cuda.experts_subjects import RouterSubject, subjects
from parkway.backends.cuda.linears import ExactLinears
from parkway.backends.cuda.tuner import Tuner
from parkway.backends.cuda.weights import DenseMatrix
from tests.backends.cuda import emulated, interpreted
from tests.backends.cuda.drawn_rows import drawn

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    interpreted.mend()

ROWS, EXPERTS, EPSILON = 37, 21, 1e-5


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    if not ON_GPU:
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)


def _router(device: torch.device, columns: int) -> tuple[torch.Tensor, torch.Tensor, DenseMatrix]:
    """Rows of which one is no number, a norm's weight, and a router."""
    x, weight = drawn(device, ROWS, columns), drawn(device, columns, seed=1).float()
    x[5] = torch.nan
    return x, weight, DenseMatrix(drawn(device, EXPERTS, columns, seed=2), drawn(device, EXPERTS, seed=3).float())


@pytest.mark.parametrize("columns", [48, 600])
def test_it_is_near_float64_and_a_row_as_if_alone(device: torch.device, columns: int) -> None:
    x, weight, router = _router(device, columns)
    normed, scores = norm_and_route(x, weight, EPSILON, router)
    wide, good = x.double(), torch.arange(ROWS, device=device) != 5
    expected = wide / torch.sqrt((wide * wide).mean(1, keepdim=True) + EPSILON) * weight.double()
    assert torch.allclose(normed.double()[good], expected[good], rtol=2.0**-7)
    assert router.bias is not None
    product = normed.double() @ router.values.double().T + router.bias.double()
    assert torch.allclose(scores.double()[good], product[good], rtol=1e-4, atol=1e-4)
    for rows in (slice(0, 1), slice(3, 20), slice(36, 37)):
        for alone, whole in zip(norm_and_route(x[rows], weight, EPSILON, router), (normed, scores), strict=True):
            assert torch.equal(alone[good[rows]], whole[rows][good[rows]])


def test_a_router_that_it_has_no_room_for_is_computed_in_two_steps(device: torch.device, tmp_path: Path) -> None:
    chooser = Chooser(Tuner(tmp_path / "picks.json", Verdict(0, {}, 0.0)))
    experts = ExactExperts(chooser, ExactLinears(chooser, Device(device.type)), Device(device.type), Rooms())
    columns = 17 * 256
    x, weight, router = _router(device, columns)
    assert not experts_router.suits(router)
    some = slice(0, 2)
    normed, scores = experts.routed(x[some], weight, EPSILON, router)
    assert router.bias is not None
    product = normed.double() @ router.values.double().T + router.bias.double()
    assert torch.allclose(scores.double(), product, rtol=1e-4, atol=1e-4 * columns**0.5)


def test_it_passes_the_bit_check(device: torch.device) -> None:
    router = next(each for each in subjects(device, 3) if isinstance(each, RouterSubject))
    assert router.output((0,), slice(0, 64)).count_nonzero() > 64 * 300
    assert not check([router], torch.equal).dropped


FAULTS = [
    ("        __syncthreads();\n        float *scales", "        float *scales"),
    ("        __syncthreads();\n        store_logits", "        store_logits"),
    ("        wait_for_groups<0>();\n", ""),
    ("first += p.blocks * WIDE", "first += 2 * p.blocks * WIDE"),
    ("apart < 32", "apart < 16"),
    ("int part = 1; part < parts", "int part = 2; part < parts"),
    ("b[step * 2], b[step * 2 + 1]", "b[0], b[1]"),
    ("int step = 0; step < 2; step++", "int step = 1; step >= 0; step--"),
]


@pytest.mark.skipif(ON_GPU, reason="of the emulation")
@pytest.mark.parametrize(("old", "new"), FAULTS)
def test_faults_are_found(
    monkeypatch: pytest.MonkeyPatch, device: torch.device, tmp_path: Path, old: str, new: str
) -> None:
    x, weight, router = _router(device, 600)
    sound = norm_and_route(x[6:], weight, EPSILON, router)
    faulty = emulated.planted(
        experts_router.SOURCE, experts_router.line(600), experts_router.SOURCE, old, new, tmp_path
    )
    monkeypatch.setattr(nvrtc, "kernel", lambda *_: faulty)
    differs = []
    for late in (False, True):
        monkeypatch.setattr(emulated.Kernel, "late", late)
        try:
            made = norm_and_route(x[6:], weight, EPSILON, router)
            differs.append(not all(torch.equal(*each) for each in zip(made, sound, strict=True)))
        except RuntimeError:
            differs.append(True)
    assert any(differs)
