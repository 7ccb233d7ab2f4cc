"""What the bit check computes of quantised products: any bits, and sums of which only their rounding is left."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from parkway.backends.bit_check import check
from parkway.backends.cuda import nvrtc
from parkway.backends.cuda.linear_config import LinearConfig
from parkway.backends.cuda.quantised import QuantConfig
from parkway.backends.cuda.quantised_pack import LAYOUTS
from parkway.backends.cuda.quantised_subjects import subjects, wide_blocks
from tests.backends.cuda import emulated
from tests.backends.cuda.interpreted import mend

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
"""Of NumPy, under the interpreter: e^-x may overflow where silu is 0."""


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    if not ON_GPU:
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)


@pytest.mark.skipif(not ON_GPU, reason="takes minutes when emulated")
def test_the_bit_check_passes(device: torch.device) -> None:
    verdict = check(subjects(device, 0), torch.equal)
    assert not verdict.dropped, verdict
    print(verdict)


@pytest.mark.skipif(ON_GPU, reason="the bit check does that")
def test_subjects_can_be_computed(device: torch.device) -> None:
    for subject in subjects(device, 0, ["Q4_K"])[12:15]:
        config = QuantConfig(2, 1, 3)
        dense = next(each for each in subject.candidates if isinstance(each, LinearConfig))
        whole = subject.output(dense, slice(0, subject.rows))
        assert torch.equal(subject.output(dense, slice(4, 6)), whole[4:6])
        if len(subject.matrices) == 1:  # e^x is another one on the CPU
            assert torch.equal(subject.output(config, slice(4, 6)), whole[4:6])
        assert len(whole.unique()) > 100


@pytest.mark.parametrize("type_name", sorted(LAYOUTS))
def test_weights_of_the_bit_check_cancel_out(type_name: str) -> None:
    """The second half of a row is the first one's negative in another order, and all are finite."""
    raw = wide_blocks(type_name, torch.Generator().manual_seed(0), 5, 2048)
    first, second = np.split(dequantize(raw, GGMLQuantizationType[type_name]), 2, axis=1)
    assert np.isfinite(first).all()
    assert len(np.unique(first)) > 100
    assert np.array_equal(second, -np.roll(first, 256, axis=1))
