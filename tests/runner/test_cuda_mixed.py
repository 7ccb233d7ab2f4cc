"""Models whose matrices are of several types, on the GPU backend beside the CPU's: on a GPU, or on the CPU under
Triton's interpreter and the host's compiler."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from parkway.backends.bit_check import Verdict
from parkway.backends.cuda import nvrtc
from parkway.backends.cuda.device import Device, Launches
from parkway.config import EngineSettings
from parkway.request import Request, SamplingParams
from parkway.runner import cuda_load
from parkway.runner.cpu_load import load_on_cpu
from parkway.runner.cuda_load import load_on_gpu
from parkway.weights import open_checkpoint, random_checkpoint
from tests.backends.cuda import emulated
from tests.backends.cuda.interpreted import mend
from tests.runner.test_cuda_runner import answers

if not torch.cuda.is_available():
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

SETTINGS = EngineSettings(ctx_size=128, parallel=1, batch_size=32, activations="f32")
HOW = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=1)
REQUEST = Request(id=0, prompt=[(i * 31) % 512 for i in range(20)], sampling=HOW, seed=0)


@pytest.mark.parametrize("shape", ["tiny-qwen3", "tiny-qwen35"])
def test_both_backends_agree_but_for_rounding(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices that multiply the same rows are sorted by type on the way, and their results sorted back."""
    monkeypatch.setattr(random_checkpoint, "_POOL_BYTES", 1 << 20)
    if not torch.cuda.is_available():
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)
        monkeypatch.setattr(cuda_load, "kept_verdict", lambda kernels, types, device: Verdict(0, {}, 0.0))
    checkpoint = open_checkpoint(Path(f"shape:{shape}:Q4_K_M"))
    models = load_on_cpu(checkpoint, SETTINGS), load_on_gpu(checkpoint, SETTINGS, Device.found())
    wanted, found = (
        [each.logprob for output in answers(model, [REQUEST], SETTINGS)[0] for each in output.prompt_logprobs]
        for model in models
    )
    assert len(wanted) == 19
    assert max(wanted) - min(wanted) > 1
    assert found == pytest.approx(wanted, abs=0.15)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="launches and graphs are the GPU's")
def test_no_bit_depends_on_when_kernels_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = open_checkpoint(Path("shape:tiny-qwen35moe:Q4_K_M"))
    model = load_on_gpu(checkpoint, SETTINGS, Device.found())
    how = SamplingParams(max_tokens=40, temperature=0, logprobs=1, ignore_eos=True)
    requests = [Request(id=number, prompt=REQUEST.prompt[number:], sampling=how, seed=0) for number in range(4)]
    made = []
    for launches in (Launches(64, 64), Launches(0, 64), Launches(0, 0)):
        monkeypatch.setattr(cuda_load, "HYBRID", launches)
        made += [answers(model, requests, replace(SETTINGS, parallel=4, ctx_size=512)) for _ in range(3)]
    assert all(each == made[0] for each in made[1:])
