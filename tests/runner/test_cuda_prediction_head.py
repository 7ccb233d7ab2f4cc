"""A prediction head on the GPU backend, as a model of its own, beside the CPU's: on a GPU, or on the CPU under Triton's
interpreter and the host's compiler."""

from pathlib import Path
from typing import Any, cast

import pytest
import torch

from parkway.backends.bit_check import Verdict
from parkway.backends.cuda import nvrtc
from parkway.backends.cuda.device import Device
from parkway.config import EngineSettings
from parkway.models import build_model
from parkway.request import Request, SamplingParams
from parkway.runner.cpu_load import CpuModel, CpuPack
from parkway.runner.cuda_load import CudaModel, CudaPack
from parkway.weights import open_checkpoint, random_checkpoint
from tests.backends.cuda import emulated
from tests.backends.cuda.interpreted import mend
from tests.models.prediction_heads import Drafting
from tests.runner.test_cuda_runner import answers

if not torch.cuda.is_available():
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

SETTINGS = EngineSettings(ctx_size=128, parallel=1, batch_size=32, activations="f32")
REQUEST = Request(
    id=0,
    prompt=[(i * 31) % 512 for i in range(20)],
    sampling=SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=1),
    seed=0,
)


@pytest.mark.parametrize("kind", ["BF16", "Q8_0"])
@pytest.mark.parametrize("shape", ["tiny-qwen35", "tiny-qwen35moe"])
def test_both_backends_draft_alike_but_for_rounding(shape: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_checkpoint, "_POOL_BYTES", 1 << 20)
    if not torch.cuda.is_available():
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)
    checkpoint, device = open_checkpoint(Path(f"shape:{shape}:{kind}")), Device.found()
    packs = CpuPack(checkpoint), CudaPack(device.torch)
    ours, theirs = (cast(Any, Drafting(build_model(checkpoint, pack), pack)) for pack in packs)
    cpu = CpuModel("tiny", ours, "f32", "portable", "tiny", 0)
    gpu = CudaModel("tiny", theirs, device, Verdict(0, {}, 0.0), "tiny", kind == "Q8_0", "tiny", 0)
    exact, made = (answers(model, [REQUEST], SETTINGS)[0] for model in (cpu, gpu))
    wanted = [each.logprob for output in exact for each in output.prompt_logprobs]
    found = [each.logprob for output in made for each in output.prompt_logprobs]
    assert len(wanted) == 19
    assert max(wanted) - min(wanted) > 1
    assert found == pytest.approx(wanted, abs=0.15)
