"""Engines on a real model that go, or die, beside copies of its pages, and the engines that come after them."""

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from parkway import LLM, SamplingParams
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.engine.engine import Engine
from parkway.errors import EngineDied
from parkway.plan.limits import Knobs
from parkway.request import Request
from parkway.runner.load import Model, load_model
from tests.engine.test_parks_faults import drained
from tests.engine.toy import joined, make_request


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, SMALL)


SMALL = EngineSettings(ctx_size=256, parallel=2, device="cpu")
PROMPTS = ["The first car park was", "A whale is"]
HOW = SamplingParams(max_tokens=24, seed=3, logprobs=2, ignore_eos=True)
PARKED = {"PARKWAY_PREEMPT_EVERY": "4", "PARKWAY_PREEMPT_SLOW_COPY_MS": "20"}


@pytest.mark.parametrize("moment", ["to_host", "from_host"])
def test_an_engine_goes_beside_its_copies_and_another_on_the_same_model_answers(
    model: Model, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [make_request(index, 30, max_tokens=24, ignore_eos=True, logprobs=0) for index in (0, 1)]
    expected_outputs = answers(make_engine(model, SMALL), requests)
    for name, value in PARKED.items():
        monkeypatch.setenv(name, value)
    knobs = Knobs(park_every=4, forget=True)
    first = make_engine(model, SMALL, knobs=knobs)
    for request in requests:
        first.arrive(request)
    while not any(getattr(copy, moment) for copy, _, _ in first._planner._room.parking._open.values()):
        first.step()
    first.close()
    del first
    second = make_engine(model, SMALL, knobs=knobs)
    assert answers(second, requests) == expected_outputs
    assert second.snapshot.resumes > 0


def answers(engine: Engine, requests: list[Request]) -> list[tuple[object, ...]]:
    for request in requests:
        engine.arrive(request)
    outputs = drained(engine)
    return [joined(outputs[request.id]) for request in requests]


def test_a_model_closed_beside_its_copies_tells_its_callers_and_loads_again(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LLM(smollm2, ctx_size=256, parallel=2, device="cpu") as llm:
        alone = llm.generate(PROMPTS, HOW)
    for name, value in PARKED.items():
        monkeypatch.setenv(name, value)
    with LLM(smollm2, ctx_size=256, parallel=2, device="cpu") as llm:
        ended = in_thread(lambda: llm.generate(PROMPTS, HOW))
        while not llm._door.snapshot.parked:
            pass
    with pytest.raises(EngineDied, match="closed"):
        raise ended()
    with LLM(smollm2, ctx_size=256, parallel=2, device="cpu") as llm:
        assert llm.generate(PROMPTS, HOW) == alone
        assert llm._door.snapshot.resumes > 0


def in_thread(call: Callable[[], object]) -> Callable[[], Exception]:
    """Calls it on a thread; the result waits for what it raises."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            call()
        except EngineDied as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> Exception:
        thread.join(30)
        [error] = raised
        return error

    return result


def test_a_copy_that_fails_on_the_cpu_is_told_to_who_waits(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("planted")

    with LLM(smollm2, ctx_size=256, parallel=2, device="cpu") as llm:
        alone = llm.generate(PROMPTS, HOW)
    monkeypatch.setenv("PARKWAY_PREEMPT_EVERY", "4")
    with monkeypatch.context() as broken:
        broken.setattr(ctypes, "memmove", fail)
        with LLM(smollm2, ctx_size=256, parallel=2, device="cpu") as llm:
            with pytest.raises(EngineDied, match="a copy of KV pages failed, so its chats can't go on: planted"):
                llm.generate(PROMPTS, HOW)
            with pytest.raises(EngineDied, match="planted"):
                llm.generate(PROMPTS, HOW)
    with LLM(smollm2, ctx_size=256, parallel=2, device="cpu") as llm:
        assert llm.generate(PROMPTS, HOW) == alone
