"""A hybrid model on the GPU backend, through the engine: on a GPU, or on the CPU under Triton's interpreter."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from parkway.backends.bit_check import Verdict
from parkway.backends.cuda.device import Device
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.plan.limits import Knobs
from parkway.runner.cuda_load import CudaModel, CudaPack
from tests.backends.cuda.interpreted import mend
from tests.engine.toy import joined, make_request, outputs_of
from tests.hybrids import TinyHybrid

if not torch.cuda.is_available():
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

SETTINGS = EngineSettings(ctx_size=128, parallel=2, batch_size=32)
REQUESTS = [
    make_request(index, length, max_tokens=4, ignore_eos=True, logprobs=1) for index, length in ((0, 3), (1, 19))
]


@pytest.fixture(scope="module")
def model() -> CudaModel:
    device = Device.found()
    family = cast(Any, TinyHybrid(CudaPack(device.torch)))
    return CudaModel("tiny", family, device, Verdict(0, {}, 0.0), "tiny", False, "tiny", 0)


def answers(model: CudaModel, settings: EngineSettings, **how: Any) -> list[Any]:
    engine = make_engine(model, settings, **how)
    outputs = outputs_of(engine, REQUESTS)
    assert engine.snapshot.resumes >= (len(REQUESTS) if how else 0)
    return [joined(outputs[request.id]) for request in REQUESTS]


def test_chunks_and_parks_change_no_bit(model: CudaModel) -> None:
    expected = answers(model, SETTINGS)
    for preempt in ("copy", "recompute"):
        settings = replace(SETTINGS, preempt=preempt)
        assert answers(model, settings, chunk_tokens=7, knobs=Knobs(park_every=2)) == expected
