"""A model with layers that see a window on the GPU backend, with rings and without: on a GPU, or on the CPU under
Triton's interpreter."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from msgspec import structs

from parkway.backends import Rings
from parkway.backends.bit_check import Verdict
from parkway.backends.cuda.device import Device
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.memory.cuda_checkpoints import CudaCheckpoints
from parkway.plan import limits
from parkway.plan.limits import Knobs
from parkway.request import Request
from parkway.runner.cuda_load import CudaModel, CudaPack
from parkway.runner.cuda_runner import CudaRunner
from parkway.runner.fit import RingUse
from tests.backends.cuda.interpreted import mend
from tests.engine.toy import joined, make_request, outputs_of
from tests.windows import TinyWindows

if not torch.cuda.is_available():
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

WINDOW = 20
SETTINGS = EngineSettings(ctx_size=512, parallel=1, batch_size=45)
"""A ring is one page: a chat of two goes round."""
REQUEST = make_request(1, 66, max_tokens=2, ignore_eos=True, logprobs=1)
TURN = structs.replace(REQUEST, id=2, prompt=[*REQUEST.prompt[:64], 5])


class OneGroup(CudaModel):
    """All layers have pages in the pool."""

    def runner(self, settings: EngineSettings, chunk_tokens: int | None = None, rings: RingUse = "never") -> CudaRunner:
        return super().runner(settings, chunk_tokens, rings)


@pytest.fixture(autouse=True)
def interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INTERVAL", 64)


def made(kind: type[CudaModel], *, remembers: bool = False) -> CudaModel:
    device = Device.found()
    family = cast(Any, TinyWindows(CudaPack(device.torch), window=WINDOW, remembers=remembers))
    return kind("tiny", family, device, Verdict(0, {}, 0.0), "tiny", False, "tiny", 0)


@pytest.fixture(scope="module")
def model() -> CudaModel:
    return made(CudaModel)


def answers(model: CudaModel, requests: list[Request], **how: Any) -> tuple[list[Any], Any]:
    """One after the other, and the engine's counts."""
    engine = make_engine(model, how.pop("settings", SETTINGS), **how)
    outputs = [joined(outputs_of(engine, [request])[request.id]) for request in requests]
    return outputs, engine.snapshot


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    return answers(made(OneGroup), [REQUEST, TURN], prefix_cache=False)[0]


def test_the_ring_is_a_page(model: CudaModel) -> None:
    rings = model.runner(SETTINGS).rings
    assert rings == Rings((0, 2), WINDOW, 45)
    assert rings.pages == 1


def test_chunks_change_no_bit(model: CudaModel, expected: list[Any]) -> None:
    assert answers(model, [REQUEST], chunk_tokens=31, prefix_cache=False)[0] == expected[:1]


def test_hits_parks_and_memory_that_nobody_wrote_change_no_bit(
    model: CudaModel, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = CudaRunner.launch

    def launch(runner: CudaRunner, plan: Any, *edits: Any) -> None:
        rings = runner._steps.pool.rings
        assert rings
        if any(chunk.start == 0 or chunk.state_from is not None for chunk in plan.chunks):
            rings.pages.fill_(torch.nan)
        own(runner, plan, *edits)

    monkeypatch.setattr(CudaRunner, "launch", launch)
    found, counts = answers(model, [REQUEST, TURN], knobs=Knobs(park_every=1, forget=True))
    assert found == expected
    assert counts.cached_tokens == 64
    assert counts.resumes == 2


def test_an_end_of_a_ring_that_is_not_copied_shows(
    model: CudaModel, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CudaCheckpoints, "keep", lambda kept, *_: kept.ends.fill_(0))
    found, counts = answers(model, [REQUEST, TURN])
    assert counts.cached_tokens == 64
    assert found[0] == expected[0]
    assert found[1] != expected[1]


def test_states_and_rings_are_kept_together() -> None:
    both = made(CudaModel, remembers=True)
    settings = replace(SETTINGS, ctx_size=1024, parallel=2)
    runner = both.runner(settings)
    kept, states, rings = runner._checkpoints, runner._steps.pool.states, runner._steps.pool.rings
    assert kept and states and rings  # noqa: PT018
    assert runner.state_bytes == states.bytes + rings.pages.nbytes + kept.bytes
    assert (runner.ring_bytes, runner.checkpoint_bytes) == (rings.pages.nbytes, kept.bytes)
    for tensor, number in ((states.matrices, 3.0), (states.inputs, 4.0), (rings.pages, 5.0)):
        tensor.fill_(number)
    kept.keep(1, 0, 64)
    for tensor in (states.matrices, states.inputs, rings.pages):
        tensor.fill_(0)
    kept.begin(0, 0, 64)
    slot = slice(0, rings.shape.pages)
    found = [float(each.float().max()) for each in (states.matrices[0], states.inputs[0], rings.pages[slot])]
    assert found == [3.0, 4.0, 5.0]
    assert not any(np.any(each.float().cpu().numpy()) for each in (states.matrices[1], rings.pages[slot.stop :]))
