"""Chats of a hybrid model that begin where another has left its state, on the GPU backend: on a GPU, or on the CPU
under Triton's interpreter."""

from typing import Any, cast

import pytest
import torch

from parkway.backends.bit_check import Verdict
from parkway.backends.cuda.delta import slot_bytes
from parkway.backends.cuda.device import Device
from parkway.config import EngineSettings
from parkway.plan.step import Chunk, StepPlan
from parkway.request import Request
from parkway.runner import cuda_load
from parkway.runner.cuda_load import CudaModel, CudaPack
from parkway.runner.cuda_runner import CudaRunner
from tests.backends.cuda.interpreted import mend
from tests.engine.toy import make_request
from tests.hybrids import TinyHybrid

if not torch.cuda.is_available():
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

SETTINGS = EngineSettings(ctx_size=192, parallel=2, batch_size=32)
REQUEST, OTHER = (make_request(number, 20, max_tokens=2, logprobs=1) for number in range(2))


@pytest.fixture(scope="module")
def model() -> CudaModel:
    device = Device.found()
    family = cast(Any, TinyHybrid(CudaPack(device.torch)))
    return CudaModel("tiny", family, device, Verdict(0, {}, 0.0), "tiny", False, "tiny", 0)


def run(
    runner: CudaRunner, slot: int, start: int, end: int, page: int, request: Request = REQUEST, **states: Any
) -> Any:
    """What a chunk of the request's prompt samples."""
    tokens, samples = tuple(request.prompt[start:end]), end == len(request.prompt)
    runner.launch(StepPlan((Chunk(slot, request, start, tokens, (page,), samples, **states),)))
    ((_, sampled),) = runner.land()
    return sampled.token_id, sampled.logprob


def test_a_chat_begins_at_a_checkpoint(model: CudaModel) -> None:
    """At an anchor, where one is as complete as at the end of a page. The page is that of the chat that was there."""
    runner = model.runner(SETTINGS)
    run(runner, 0, 0, 16, page=1, state_to=1)
    run(runner, 1, 0, 16, page=0, request=OTHER, state_to=0)
    expected = run(runner, 0, 16, 20, page=1)
    assert run(runner, 1, 16, 20, page=1, state_from=0) != expected
    assert run(runner, 1, 16, 20, page=1, state_from=1) == expected
    assert run(runner, 1, 16, 20, page=1) != expected, "it is a copy, which does not go on with the slot"


def test_its_bytes_are_told(model: CudaModel) -> None:
    runner = model.runner(SETTINGS)
    states = runner._steps.pool.states
    assert states
    assert runner.checkpoints == 2
    kept = (states.matrices.nbytes + states.inputs.nbytes) // SETTINGS.parallel
    assert runner.state_bytes == SETTINGS.parallel * slot_bytes(states.shape) + 2 * kept
    assert runner.checkpoint_bytes == 2 * kept


def test_bytes_of_states_are_told_where_no_checkpoint_fits(model: CudaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_load, "checkpoints_for", lambda *sizes: 0)
    runner = model.runner(SETTINGS)
    states = runner._steps.pool.states
    assert states
    assert (runner.checkpoints, runner.state_bytes) == (0, SETTINGS.parallel * slot_bytes(states.shape))
