"""Room for decoded matrices is taken when a model is loaded: a step that needs much of it finds it there."""

import pytest
import torch

from parkway.backends.bit_check import Verdict
from parkway.backends.cuda import nvrtc
from parkway.backends.cuda.device import Device
from parkway.backends.cuda.linears import ExactLinears
from parkway.config import EngineSettings
from parkway.request import Request, SamplingParams
from parkway.runner import cuda_load
from parkway.runner.cuda_load import CudaModel, load_on_gpu
from parkway.weights import open_checkpoint
from tests.backends.cuda import emulated
from tests.backends.cuda.interpreted import mend
from tests.checkpoints import HEAD_DIM, HEADS, KV_HEADS, WIDTH, tiny_llama
from tests.runner.test_cuda_runner import answers

if not torch.cuda.is_available():
    mend()
SETTINGS = EngineSettings(ctx_size=192, parallel=2, batch_size=80)
QKV, OUTPUT = (HEADS + 2 * KV_HEADS) * HEAD_DIM * WIDTH, 262 * WIDTH
"""Values of the largest matrix of a layer, which is q, k and v as one, and of the output's."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> CudaModel:
    path = tiny_llama(tmp_path_factory.mktemp("tiny") / "q8_0.gguf", types=("Q8_0",))
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setattr(cuda_load, "kept_verdict", lambda kernels, types, device: Verdict(0, {}, 0.0))
        return load_on_gpu(open_checkpoint(path), SETTINGS, Device.found())


@pytest.mark.parametrize(
    ("batch_size", "parallel", "values"), [(64, 2, 0), (65, 2, QKV), (4096, 64, QKV), (4096, 65, OUTPUT)]
)
def test_room_is_for_what_so_many_rows_multiply(model: CudaModel, batch_size: int, parallel: int, values: int) -> None:
    assert model._most_decoded(EngineSettings(batch_size=batch_size, parallel=parallel)) == values


def test_a_long_prompt_takes_no_more(model: CudaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    empty = ExactLinears._empty

    def counted(self: ExactLinears, values: int) -> torch.Tensor:
        made.append(values)
        return empty(self, values)

    monkeypatch.setattr(ExactLinears, "_empty", counted)
    if not torch.cuda.is_available():
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)
    prompt = [index % 200 for index in range(100)]
    how = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
    (outputs,) = answers(model, [Request(id=0, prompt=prompt, sampling=how, seed=0)], SETTINGS).values()
    assert outputs[-1].finish_reason == "length"
    assert made == [QKV, QKV]
