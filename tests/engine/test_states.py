"""Chats of a hybrid model through the engine: their states stay in their slots, whatever becomes of their pages."""

from dataclasses import replace
from typing import Any, cast

import pytest

from parkway.backends.cpu.library import best_isa
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.plan.limits import Knobs
from parkway.request import Request
from parkway.runner.cpu_load import CpuModel
from tests.backends.rig import CpuPack
from tests.engine.toy import VOCAB_SIZE, joined, make_request, outputs_of
from tests.hybrids import VOCABULARY, TinyHybrid

SETTINGS = EngineSettings(ctx_size=512, parallel=3, batch_size=64, device="cpu", activations="f32", threads=1)


@pytest.fixture(scope="module")
def model() -> CpuModel:
    return CpuModel("tiny", cast(Any, TinyHybrid(CpuPack())), "f32", best_isa(), "tiny", 0)


REQUESTS = [
    make_request(index, length, max_tokens=20, ignore_eos=True, logprobs=1, temperature=0.8)
    for index, length in enumerate((5, 70, 33))
]


def answers(model: CpuModel, requests: list[Request], settings: EngineSettings, **how: Any) -> list[Any]:
    engine = make_engine(model, settings, **how)
    outputs = outputs_of(engine, requests)
    return [joined(outputs[request.id]) for request in requests]


@pytest.fixture(scope="module")
def alone(model: CpuModel) -> list[Any]:
    settings = replace(SETTINGS, parallel=1, batch_size=512)
    return [answers(model, [request], settings)[0] for request in REQUESTS]


def test_the_model_remembers(model: CpuModel) -> None:
    """Two prompts that differ in their first token only have different answers: else nothing here means anything."""
    first = make_request(9, 40, max_tokens=8, ignore_eos=True, logprobs=1)
    other = Request(id=8, prompt=[5, *first.prompt[1:]], sampling=first.sampling, seed=9, stop_ids=first.stop_ids)
    assert max(first.prompt) < VOCAB_SIZE <= VOCABULARY
    assert answers(model, [first], SETTINGS) != answers(model, [other], SETTINGS)


@pytest.mark.parametrize("chunk_tokens", [1, 7, 16, None])
def test_neighbours_and_chunks_change_no_bit(model: CpuModel, alone: list[Any], chunk_tokens: int | None) -> None:
    assert answers(model, REQUESTS, SETTINGS, chunk_tokens=chunk_tokens) == alone
    assert answers(model, REQUESTS[::-1], SETTINGS, chunk_tokens=chunk_tokens) == alone[::-1]


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("preempt", ["copy", "recompute"])
def test_parked_chats_go_on_from_their_states_or_begin_anew(
    model: CpuModel, alone: list[Any], preempt: Any, forget: bool
) -> None:
    settings = replace(SETTINGS, preempt=preempt)
    engine = make_engine(model, settings, chunk_tokens=9, knobs=Knobs(park_every=3, forget=forget))
    outputs = outputs_of(engine, REQUESTS)
    assert [joined(outputs[request.id]) for request in REQUESTS] == alone
    assert engine.snapshot.resumes >= len(REQUESTS)
    assert (engine.snapshot.recomputes > 0) == (preempt == "recompute")
