"""The GPU's verification without a GPU: two runners serve every configuration, and what depends on traffic is found."""

import json
from pathlib import Path
from typing import Any

import pytest

from parkway import verify
from parkway.config import EngineSettings, Switch
from parkway.plan.step import Chunk, StepPlan
from parkway.verify import command
from parkway.verify.cast import SIZES, Cast, Mode
from parkway.verify.configurations import AXES, covering, sample
from parkway.verify.engines import engines_on
from parkway.verify.traffic import occasions
from parkway.verify.trial import answers_alone, attempt
from tests.verify.toy_gpu import Fault, ToyGpuModel

MODEL = Path("toy")


def run(monkeypatch: pytest.MonkeyPatch, model: ToyGpuModel) -> int:
    monkeypatch.setattr(command, "chosen_device", lambda _: "cuda")
    monkeypatch.setattr(command, "load_model", lambda *_: model)
    return verify.run(MODEL, "quick", 0)


def told(capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, Any]]:
    text, _, line = capsys.readouterr().out.rstrip("\n").rpartition("\n")
    return text, json.loads(line)


def test_two_runners_serve_every_configuration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ToyGpuModel()
    assert run(monkeypatch, model) == 0
    assert {runner.graphs for runner in model.runners} == {"on", "off"}
    assert len(model.runners) == 2
    text, line = told(capsys)
    assert line["device"] == "cuda"
    assert line["versions"].keys() >= {"torch", "triton"}
    assert line["configurations"] >= 24
    assert line["parks"] > line["prompt_parks"] > 0
    assert line["restores"] > 0
    assert line["recomputes"] > 0
    assert line["missed"] == 0
    assert line["cached_tokens"] > 500
    assert "graphs" in text
    assert "threads" not in text


class Tried:
    """Everything of a verification, and the steps of each configuration."""

    def __init__(self, mode: Mode, seed: int) -> None:
        self.model = ToyGpuModel()
        size, axes = SIZES["cuda"][mode], AXES["cuda"]
        self.cast = Cast.drawn(size, self.model.vocab_size, seed)
        self.occasions = occasions(self.cast, [*covering(axes, seed), *sample(axes, seed, size.sample)])
        engines = engines_on("cuda", self.model, EngineSettings(), self.cast.chats, self.occasions)
        alone = dict(answers_alone(engines, self.cast.chats))
        self.alone = list(self.steps)
        self.together: list[list[StepPlan]] = []
        for occasion in self.occasions:
            before = len(self.steps)
            trial = attempt(engines, occasion, alone)
            assert not trial.differences
            assert not trial.missed
            self.together.append(self.steps[before:])

    @property
    def steps(self) -> list[StepPlan]:
        return self.model.plans


@pytest.fixture(scope="module")
def whole() -> Tried:
    return Tried("full", 0)


def rows(step: StepPlan) -> int:
    return sum(len(chunk.tokens) for chunk in step.chunks)


def test_alone_is_one_slot_and_a_whole_prompt_without_graphs(whole: Tried) -> None:
    assert whole.model.runners[0].graphs == "off"
    assert {(chunk.slot, len(step.chunks)) for step in whole.alone for chunk in step.chunks} == {(0, 1)}
    for chunk in (chunk for step in whole.alone for chunk in step.chunks if chunk.start == 0):
        scored = chunk.request.sampling.prompt_logprobs is not None
        assert scored or len(chunk.tokens) == len(chunk.request.prompt)


def test_every_configuration_keeps_to_its_values(whole: Tried) -> None:
    for occasion, steps in zip(whole.occasions, whole.together, strict=True):
        configuration, chunks = occasion.configuration, [chunk for step in steps for chunk in step.chunks]
        assert max(chunk.slot for chunk in chunks) < configuration.slots
        assert max(map(rows, steps)) <= occasion.step_rows
        assert len({page for chunk in chunks for page in chunk.pages}) <= occasion.pages
        if configuration.chunk:
            assert max(len(chunk.tokens) for chunk in chunks) <= configuration.chunk


def test_steps_get_as_wide_as_they_can(whole: Tried) -> None:
    assert max(len(step.chunks) for step in whole.steps) == 64
    assert max(map(rows, whole.steps)) > 2048


def test_an_8b_model_is_verified_in_time(whole: Tried) -> None:
    """A step of an 8B model takes 8 ms where it reads the weights, and at 30,000 tokens a second where it computes."""
    assert sum(max(0.008, rows(step) / 30_000) for step in whole.steps) < 120


def test_pages_are_found_in_many_configurations(whole: Tried) -> None:
    found = [any(chunk.cached for step in steps for chunk in step.chunks) for steps in whole.together]
    assert sum(found) >= 8


def several(plan: StepPlan, chunk: Chunk, graphs: Switch) -> bool:
    return len(plan.chunks) > 1


def very_many(plan: StepPlan, chunk: Chunk, graphs: Switch) -> bool:
    return len(plan.chunks) > 32


def piecewise(plan: StepPlan, chunk: Chunk, graphs: Switch) -> bool:
    return chunk.end == len(chunk.request.prompt) and chunk.start > 0


def captured(plan: StepPlan, chunk: Chunk, graphs: Switch) -> bool:
    return graphs == "on" and len(plan.chunks) == 1


def in_order(plan: StepPlan, chunk: Chunk, graphs: Switch) -> bool:
    return chunk.pages == tuple(range(len(chunk.pages)))


def in_the_last_slot(plan: StepPlan, chunk: Chunk, graphs: Switch) -> bool:
    return chunk.slot == 63


def on_found_pages(plan: StepPlan, chunk: Chunk, graphs: Switch) -> bool:
    return chunk.cached > 0


@pytest.mark.parametrize("fault", [several, very_many, piecewise, captured, in_order, in_the_last_slot, on_found_pages])
def test_a_bit_that_depends_on_the_traffic_is_found(
    fault: Fault, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, ToyGpuModel(fault)) == 1
    text, line = told(capsys)
    assert line["differing"] > 0
    assert "Configuration" in text
