"""`--numerics fast` on the GPU backend says that it is not exact, wherever that can be read."""

from dataclasses import replace

import pytest
import torch

from parkway.backends.bit_check import Verdict
from parkway.backends.cuda.device import Device
from parkway.backends.cuda.fast import FastOps
from parkway.config import EngineSettings, Numerics
from parkway.engine.build import make_engine
from parkway.runner import cuda_load
from parkway.runner.cuda_load import CudaModel, load_on_gpu
from parkway.weights import open_checkpoint
from tests.backends.cuda.interpreted import mend
from tests.checkpoints import tiny_llama

if not torch.cuda.is_available():
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

EXACT = EngineSettings(ctx_size=256, parallel=2, cuda_graphs="off")
FAST = replace(EXACT, numerics="fast")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[Numerics, CudaModel]:
    """Of one file. On the CPU the bit check would take minutes."""
    path = tiny_llama(tmp_path_factory.mktemp("tiny") / "f16.gguf", types=("F16",))
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setattr(cuda_load, "kept_verdict", lambda kernels, types, device: Verdict(0, {}, 0.0))
        return {each.numerics: load_on_gpu(open_checkpoint(path), each, Device.found()) for each in (EXACT, FAST)}


def test_its_facts_promise_nothing(models: dict[Numerics, CudaModel]) -> None:
    exact, fast = (make_engine(models[each.numerics], each).facts for each in (EXACT, FAST))
    assert (exact.exact, fast.exact) == (True, False)


def test_its_fingerprint_is_another(models: dict[Numerics, CudaModel]) -> None:
    assert models["fast"].fingerprint != models["exact"].fingerprint
    assert make_engine(models["fast"], FAST).facts.fingerprint == models["fast"].fingerprint


def test_what_says_so_is_what_computes(models: dict[Numerics, CudaModel]) -> None:
    computes = [isinstance(models[each.numerics].runner(each)._steps.ops, FastOps) for each in (EXACT, FAST)]
    assert computes == [False, True]
