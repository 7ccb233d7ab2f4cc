"""Chats of a hybrid model that begin where another has left its state: their answers are those without, to the bit."""

from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec import structs

from parkway.backends.cpu.library import best_isa
from parkway.backends.cpu.recorder_states import slot_bytes
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.memory.state_store import StateStore
from parkway.plan import limits
from parkway.plan.limits import Knobs
from parkway.runner.cpu_load import CpuModel
from tests.backends.rig import CpuPack
from tests.engine.beginnings import answers, asked, sharing
from tests.engine.toy import VOCAB_SIZE
from tests.hybrids import TinyHybrid

SETTINGS = EngineSettings(ctx_size=512, parallel=3, batch_size=96, device="cpu", activations="f32", threads=1)
SYSTEM = [(5 * at + 3) % VOCAB_SIZE for at in range(135)]
MAX_TOKENS = 24


@pytest.fixture(autouse=True)
def interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INTERVAL", 64)


@pytest.fixture(scope="module")
def model() -> CpuModel:
    return CpuModel("tiny", cast(Any, TinyHybrid(CpuPack())), "f32", best_isa(), "tiny", 0)


REQUESTS = sharing(SYSTEM, [(135, 0), (135, 0), (135, 20), (70, 90), (128, 1), (64, 1), (63, 30)], MAX_TOKENS)


@pytest.fixture(scope="module")
def alone(model: CpuModel) -> list[Any]:
    settings = replace(SETTINGS, parallel=1)
    return [answers(make_engine(model, settings, prefix_cache=False), [request])[0] for request in REQUESTS]


def test_one_after_the_other(model: CpuModel, alone: list[Any]) -> None:
    engine = make_engine(model, replace(SETTINGS, ctx_size=8192))
    assert [answers(engine, [request])[0] for request in REQUESTS] == alone
    assert engine.snapshot.cached_tokens == 128 + 128 + 64 + 128 + 64


def test_the_next_turn_of_a_chat(model: CpuModel) -> None:
    """It begins behind a part of the answer."""
    engine = make_engine(model, SETTINGS)
    first = asked(0, SYSTEM[:110], MAX_TOKENS)
    (answer,) = answers(engine, [first])
    turn = asked(1, [*first.prompt, *answer[0], 7, 8, 9], MAX_TOKENS)
    assert answers(engine, [turn]) == answers(make_engine(model, SETTINGS, prefix_cache=False), [turn])
    assert engine.snapshot.cached_tokens == 128


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("preempt", ["copy", "recompute"])
@pytest.mark.parametrize("chunk_tokens", [9, None])
def test_together_parked_and_computed_again(
    model: CpuModel, alone: list[Any], preempt: Any, forget: bool, chunk_tokens: int | None
) -> None:
    settings = replace(SETTINGS, preempt=preempt)
    engine = make_engine(model, settings, chunk_tokens=chunk_tokens, knobs=Knobs(park_every=5, forget=forget))
    assert answers(engine, REQUESTS) == alone
    assert answers(engine, REQUESTS[::-1]) == alone[::-1]
    assert engine.snapshot.cached_tokens > 0
    assert engine.snapshot.resumes >= 2 * len(REQUESTS)


def test_beside_chats_that_are_cancelled(model: CpuModel, alone: list[Any]) -> None:
    engine = make_engine(model, SETTINGS, chunk_tokens=20, knobs=Knobs(park_every=5))
    for steps in range(24):
        engine.arrive(structs.replace(REQUESTS[steps % 3], id=100))
        for _ in range(steps):
            engine.step()
        engine.cancel(100)
        number = steps % len(REQUESTS)
        assert answers(engine, [REQUESTS[number]]) == [alone[number]]
    assert engine.snapshot.cached_tokens > 0


QUESTIONS = sharing(SYSTEM, [(135, rest) for rest in (200, 150, 180, 70)], MAX_TOKENS)


@pytest.fixture(scope="module")
def answers_alone(model: CpuModel) -> list[Any]:
    settings = replace(SETTINGS, parallel=1)
    return [answers(make_engine(model, settings, prefix_cache=False), [request])[0] for request in QUESTIONS]


def test_long_questions_behind_one_system_prompt(
    model: CpuModel, answers_alone: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third begins behind it."""
    monkeypatch.setattr(limits, "INTERVAL", 512)
    engine, cached = make_engine(model, replace(SETTINGS, ctx_size=8192)), []
    for request, answer in zip(QUESTIONS, answers_alone, strict=True):
        assert answers(engine, [request]) == [answer]
        cached.append(engine.snapshot.cached_tokens)
    assert cached == [0, 0, 128, 256]


@pytest.mark.parametrize("chunk_tokens", [9, None])
def test_long_questions_together_parked_and_computed_again(
    model: CpuModel, answers_alone: list[Any], chunk_tokens: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INTERVAL", 512)
    settings = replace(SETTINGS, ctx_size=1024, preempt="recompute")
    engine = make_engine(model, settings, chunk_tokens=chunk_tokens, knobs=Knobs(park_every=5))
    assert answers(engine, QUESTIONS) == answers_alone
    assert answers(engine, QUESTIONS[::-1]) == answers_alone[::-1]
    assert engine.snapshot.cached_tokens > 0


@pytest.mark.parametrize("copy", ["begin", "keep"])
def test_a_state_that_is_not_copied_shows(
    model: CpuModel, alone: list[Any], copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateStore, copy, lambda *_: None)
    engine = make_engine(model, SETTINGS)
    answers(engine, [asked(9, [1] * 20, MAX_TOKENS)])
    assert [answers(engine, [request])[0] for request in REQUESTS] != alone


def test_its_bytes_are_told(model: CpuModel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    runner = model.runner(SETTINGS)
    assert runner.checkpoints == 2
    assert model.family.config.states
    each = slot_bytes(model.family.config.states)
    engine = make_engine(model, SETTINGS)
    assert (engine.facts.state_bytes, engine.facts.checkpoint_bytes) == (3 * each, 2 * each)
    assert runner.state_bytes == 5 * each
    assert "states of 3 chats 0.1 MiB, 2 checkpoints 0.0 MiB" in caplog.text
