"""Copies of a CPU runner's pages. What its steps compute is tested with the backend and with the engine."""

import ctypes as C
from pathlib import Path

import pytest

from parkway.config import EngineSettings
from parkway.plan.copies import Copy, Owner
from parkway.plan.step import Chunk, StepPlan
from parkway.request import Request, SamplingParams
from parkway.runner.cpu_load import load_on_cpu
from parkway.weights import open_checkpoint
from tests.checkpoints import tiny_llama


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "at once"])
def test_what_a_step_wrote_is_parked_and_comes_back(tmp_path: Path, beside: bool) -> None:
    settings = EngineSettings(device="cpu", ctx_size=256, parallel=1)
    runner = load_on_cpu(open_checkpoint(tiny_llama(tmp_path / "f16.gguf", types=("F16",))), settings).runner(settings)
    copies = runner.copies(2**24, beside=beside)
    request = Request(id=0, prompt=[*range(90, 110)], sampling=SamplingParams(max_tokens=2), seed=0)
    runner.launch(StepPlan((Chunk(0, request, 0, tuple(request.prompt), (2,), False),)))
    copies.submit(Copy(0, Owner.PARK, (2,), (5,)))
    copies.drain()
    copies.submit(Copy(1, Owner.RESTORE, (5,), (0,)))
    copies.drain()
    parked, back = (C.string_at(runner._store.page(page).address, runner.page_bytes) for page in (2, 0))
    assert parked == back
    assert any(parked)
