"""Models of random weights with layers that see a window are verified: rings go round, chats are parked, computed
again, begin at checkpoints; and what is planted into rings is found."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from parkway.backends import Rings
from parkway.memory.ring_store import RingStore
from parkway.plan.step import PAGE_TOKENS, StepPlan
from parkway.runner.cpu_runner import CpuRunner
from parkway.runner.edits import NO_EDITS, Edits
from parkway.verify.cast import BEYOND, SIZES
from tests.models.transformers_models import FAMILIES, Tiny

from .conftest import Verified

WINDOW = FAMILIES["gemma3"].said["sliding_window"]


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Tiny(FAMILIES["gemma3"], seed=1).save(tmp_path_factory.mktemp("saved") / "tiny")


def test_it_is_exact_and_rings_go_round(gemma: Path, verified: Verified, monkeypatch: pytest.MonkeyPatch) -> None:
    own, ends = CpuRunner.launch, set[tuple[int, bool]]()

    def launch(runner: CpuRunner, plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
        own(runner, plan, edits)
        pages = runner.rings.pages if runner.rings else 0
        ends.update((pages, chunk.end > pages * PAGE_TOKENS) for chunk in plan.chunks)

    monkeypatch.setattr(CpuRunner, "launch", launch)
    code, line = verified(gemma)
    assert code == line["differing"] == line["missed"] == 0
    assert line["cached_tokens"] > 500
    assert line["recomputes"] > 0
    assert line["restores"] > 0
    assert {pages for pages, round_ in ends if round_} >= {0, 1, 2}, "without rings, and round small ones"
    assert max(pages for pages, _ in ends) > 3


@pytest.mark.usefixtures("shared_only")
def test_an_end_of_a_ring_that_is_not_copied_is_found(
    gemma: Path, monkeypatch: pytest.MonkeyPatch, verified: Verified
) -> None:
    monkeypatch.setattr(RingStore, "begin", lambda *_: None)
    assert verified(gemma)[1]["differing"] > 0


def test_a_ring_that_is_a_page_too_small_is_found(
    gemma: Path, monkeypatch: pytest.MonkeyPatch, verified: Verified
) -> None:
    enough = Rings.pages.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Rings, "pages", property(lambda rings: max(1, enough(rings) - 1)))
    assert verified(gemma)[1]["differing"] > 0


def test_a_window_has_a_subject_that_goes_round() -> None:
    size = SIZES["cpu"]["quick"]
    assert size.beyond(WINDOW).subject_prompts == (*size.subject_prompts, WINDOW + BEYOND)
    assert size.beyond(0) == size.beyond(4096) == size, "there is none, or it would take too long"
    for chunk in (1, 7, 64, 100):
        assert Rings((0,), WINDOW, chunk).pages * PAGE_TOKENS < WINDOW + BEYOND
