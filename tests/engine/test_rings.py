"""Chats of models with layers that see a window: with rings in their slots they answer as with all pages in the pool,
to the bit, whatever becomes of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from msgspec import structs

from parkway.backends import Rings
from parkway.backends.cpu.library import best_isa
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.engine.engine import Engine
from parkway.memory.ring_store import RingStore
from parkway.plan import limits
from parkway.plan.limits import Knobs
from parkway.plan.step import PAGE_TOKENS, Chunk, StepPlan
from parkway.runner.cpu_load import CpuModel
from parkway.runner.cpu_runner import CpuRunner
from parkway.runner.edits import NO_EDITS, Edits
from parkway.runner.fit import RingUse
from tests.backends.rig import CpuPack
from tests.engine.beginnings import answers, asked, sharing
from tests.engine.toy import VOCAB_SIZE
from tests.windows import WINDOW, TinyWindows

SETTINGS = EngineSettings(ctx_size=3072, parallel=3, batch_size=96, device="cpu", activations="f32", threads=1)
SYSTEM = [(5 * at + at // 9 + 3) % VOCAB_SIZE for at in range(280)]
MAX_TOKENS = 40


class OneGroup(CpuModel):
    """All layers have pages in the pool."""

    def runner(self, settings: EngineSettings, chunk_tokens: int | None = None, rings: RingUse = "never") -> CpuRunner:
        return super().runner(settings, chunk_tokens, rings)


@pytest.fixture(autouse=True)
def interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INTERVAL", 64)


def made(kind: type[CpuModel], *, remembers: bool) -> CpuModel:
    family = TinyWindows(CpuPack(), remembers=remembers)
    return kind("tiny", cast(Any, family), "f32", best_isa(), "tiny", 0)


@pytest.fixture(scope="module", params=[False, True], ids=["windows", "windows and a delta net"])
def remembers(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def model(remembers: bool) -> CpuModel:
    return made(CpuModel, remembers=remembers)


REQUESTS = sharing(SYSTEM, [(280, 0), (280, 0), (280, 60), (150, 190), (128, 1), (64, 1), (63, 300)], MAX_TOKENS)


@pytest.fixture(scope="module")
def alone(remembers: bool) -> list[Any]:
    model, settings = made(OneGroup, remembers=remembers), replace(SETTINGS, parallel=1, batch_size=512)
    return [answers(make_engine(model, settings, prefix_cache=False), [request])[0] for request in REQUESTS]


def rings_of(engine: Engine) -> Rings:
    """It has some, and the longest chats go round."""
    rings = cast(CpuRunner, engine._runner).rings
    assert rings
    assert rings.pages * PAGE_TOKENS < max(len(request.prompt) for request in REQUESTS)
    return rings


@pytest.mark.parametrize("chunk_tokens", [1, 7, 58, None])
def test_neighbours_and_chunks_change_no_bit(model: CpuModel, alone: list[Any], chunk_tokens: int | None) -> None:
    engine = make_engine(model, SETTINGS, chunk_tokens=chunk_tokens, prefix_cache=False)
    assert rings_of(engine) == Rings((0, 2), WINDOW, chunk_tokens or 64)
    assert answers(engine, REQUESTS) == alone
    assert answers(engine, REQUESTS[::-1]) == alone[::-1]


def test_one_after_the_other(model: CpuModel, alone: list[Any]) -> None:
    engine = make_engine(model, replace(SETTINGS, ctx_size=8192))
    assert [answers(engine, [request])[0] for request in REQUESTS] == alone
    assert engine.snapshot.cached_tokens == 256 + 256 + 128 + 128


def test_the_next_turn_of_a_chat(model: CpuModel, remembers: bool) -> None:
    """It begins behind a part of the answer."""
    engine = make_engine(model, SETTINGS)
    first = asked(0, SYSTEM[:240], MAX_TOKENS)
    (answer,) = answers(engine, [first])
    turn = asked(1, [*first.prompt, *answer[0], 7, 8, 9], MAX_TOKENS)
    plain = make_engine(made(OneGroup, remembers=remembers), SETTINGS, prefix_cache=False)
    assert answers(engine, [turn]) == answers(plain, [turn])
    assert engine.snapshot.cached_tokens == 256


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("preempt", ["copy", "recompute"])
@pytest.mark.parametrize("chunk_tokens", [9, None])
def test_together_parked_and_computed_again(
    model: CpuModel, alone: list[Any], preempt: Any, forget: bool, chunk_tokens: int | None
) -> None:
    settings = replace(SETTINGS, preempt=preempt)
    engine = make_engine(model, settings, chunk_tokens=chunk_tokens, knobs=Knobs(park_every=11, forget=forget))
    rings_of(engine)
    assert answers(engine, REQUESTS) == alone
    assert answers(engine, REQUESTS[::-1]) == alone[::-1]
    assert engine.snapshot.cached_tokens > 0
    assert engine.snapshot.resumes >= 2 * len(REQUESTS)
    assert (engine.snapshot.recomputes > 0) == (preempt == "recompute")


def test_long_questions_behind_one_system_prompt(
    model: CpuModel, remembers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third begins behind it."""
    monkeypatch.setattr(limits, "INTERVAL", 512)
    questions = sharing(SYSTEM, [(280, rest) for rest in (300, 250, 330, 200)], MAX_TOKENS)
    engine, cached = make_engine(model, replace(SETTINGS, ctx_size=8192)), []
    rings_of(engine)
    settings = replace(SETTINGS, parallel=1, batch_size=512)
    plain = make_engine(made(OneGroup, remembers=remembers), settings, prefix_cache=False)
    for request in questions:
        assert answers(engine, [request]) == answers(plain, [request])
        cached.append(engine.snapshot.cached_tokens)
    assert cached == [0, 0, 256, 512]


def poison(store: RingStore, slot: int, kept: range) -> None:
    """NaN in all places of a slot's ring but those of these positions of its chat."""
    rings = store.memory.array()[: store.ring_bytes].view(np.float32)
    layers = rings.reshape(SETTINGS.parallel, store.rings.pages, 2, 2, -1)[slot]
    keys = layers[:, :, 0].reshape(store.rings.pages, 2, 4, -1, 16)  # in tiles of 16 positions
    values = layers[:, :, 1].reshape(store.rings.pages, 2, PAGE_TOKENS, -1)
    size = store.rings.pages * PAGE_TOKENS
    for place in {*range(size)} - {position % size for position in kept}:
        page, at = divmod(place, PAGE_TOKENS)
        keys[page, :, at // 16, :, at % 16] = values[page, :, at] = np.nan


@pytest.mark.parametrize("chunk_tokens", [7, None])
def test_nobody_looks_at_what_has_left_the_window_or_is_of_a_chat_before(
    model: CpuModel, alone: list[Any], chunk_tokens: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = CpuRunner.launch

    def launch(runner: CpuRunner, plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
        assert runner._rings
        for chunk in plan.chunks:
            if chunk.start == 0 or chunk.state_from is not None:
                poison(runner._rings, chunk.slot, range(0))
        own(runner, plan, edits)
        for chunk in plan.chunks:
            poison(runner._rings, chunk.slot, range(max(0, chunk.end + 1 - WINDOW), chunk.end))

    monkeypatch.setattr(CpuRunner, "launch", launch)
    engine = make_engine(model, SETTINGS, chunk_tokens=chunk_tokens, knobs=Knobs(park_every=11))
    rings_of(engine)
    assert answers(engine, REQUESTS) == alone
    assert answers(engine, REQUESTS[::-1]) == alone[::-1]
    assert engine.snapshot.cached_tokens > 0


def test_beside_chats_that_are_cancelled(model: CpuModel, alone: list[Any]) -> None:
    engine = make_engine(model, SETTINGS, chunk_tokens=20, knobs=Knobs(park_every=11))
    rings_of(engine)
    for steps in range(0, 36, 3):
        engine.arrive(structs.replace(REQUESTS[steps % 3], id=100))
        for _ in range(steps):
            engine.step()
        engine.cancel(100)
        number = steps // 3 % len(REQUESTS)
        assert answers(engine, [REQUESTS[number]]) == [alone[number]]
    assert engine.snapshot.cached_tokens > 0


@pytest.mark.parametrize("copy", ["begin", "keep"])
def test_an_end_of_a_ring_that_is_not_copied_shows(
    model: CpuModel, alone: list[Any], copy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RingStore, copy, lambda *_: None)
    engine = make_engine(model, SETTINGS)
    answers(engine, [asked(9, [1] * 300, MAX_TOKENS)])
    assert [answers(engine, [request])[0] for request in REQUESTS] != alone


def test_a_ring_that_is_a_page_too_small_shows(
    model: CpuModel, alone: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    enough: Callable[[Rings], int] = Rings.pages.fget  # type: ignore[attr-defined]
    for missing in (0, 1):
        pages = property(lambda rings: enough(rings) - missing)  # noqa: B023 (read before the next turn)
        monkeypatch.setattr(Rings, "pages", pages)
        engine = make_engine(model, SETTINGS, chunk_tokens=59, prefix_cache=False)
        assert (answers(engine, REQUESTS) == alone) == (missing == 0)


def test_a_chunk_that_no_ring_has_room_for_is_refused(model: CpuModel) -> None:
    runner = model.runner(SETTINGS)
    assert runner.rings
    request = asked(0, SYSTEM, MAX_TOKENS)
    plan = StepPlan((Chunk(0, request, 0, tuple(SYSTEM[: runner.rings.chunk + 1]), (0, 1), False),))
    with pytest.raises(AssertionError, match="overwrites what its own rows see"):
        runner.launch(plan)


def parked_bytes(model: CpuModel) -> int:
    """Most of one chat while it is out."""
    engine, most = make_engine(model, SETTINGS, knobs=Knobs(park_every=11, forget=True)), 0
    engine.arrive(REQUESTS[0])
    while not engine.idle:
        engine.step()
        most = max(most, engine.snapshot.parked_bytes)
    assert engine.snapshot.parks >= 3
    return most


def test_a_park_copies_only_what_is_not_in_a_ring(model: CpuModel, remembers: bool) -> None:
    """One layer of three."""
    assert 3 * parked_bytes(model) == parked_bytes(made(OneGroup, remembers=remembers)) > 0


def test_its_bytes_are_told(model: CpuModel, remembers: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    runner = model.runner(SETTINGS)
    engine = make_engine(model, SETTINGS)
    page_bytes = runner.page_bytes * 2  # two layers of three
    assert runner.rings
    assert (runner.rings.pages, runner.rings.kept, runner.checkpoints) == (3, 2, 6)
    assert runner.ring_bytes == 3 * 3 * page_bytes
    states = runner.state_bytes - runner.ring_bytes - runner.checkpoint_bytes
    assert runner.checkpoint_bytes == 6 * 2 * page_bytes + 6 * states // 3
    assert (states > 0) == remembers
    assert engine.facts.state_bytes == states + runner.ring_bytes
    assert engine.facts.checkpoint_bytes == runner.checkpoint_bytes
    for name in ("rings of 3 chats 0.", "6 checkpoints 0."):
        assert name in caplog.text
    assert ("states of 3 chats 0." in caplog.text) == remembers
