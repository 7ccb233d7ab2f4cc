"""A hybrid model of random weights is verified: parked, computed again, with hits at checkpoints and without."""

from pathlib import Path

import pytest

from parkway.memory.state_store import StateStore
from parkway.plan.checkpoints import Checkpoints

from .conftest import Verified

HYBRID = Path("shape:tiny-qwen35")


def test_it_is_exact(verified: Verified) -> None:
    code, line = verified(HYBRID)
    assert code == line["differing"] == line["missed"] == 0
    assert line["cached_tokens"] > 500
    assert line["recomputes"] > 0
    assert line["restores"] > 0


@pytest.mark.usefixtures("shared_only")
def test_a_state_that_is_not_copied_is_found(monkeypatch: pytest.MonkeyPatch, verified: Verified) -> None:
    monkeypatch.setattr(StateStore, "begin", lambda *_, **__: None)
    assert verified(HYBRID)[1]["differing"] > 0


@pytest.mark.usefixtures("shared_only")
def test_pages_without_a_checkpoint_are_found(monkeypatch: pytest.MonkeyPatch, verified: Verified) -> None:
    monkeypatch.setattr(Checkpoints, "reached", lambda self, slot, pages: len(pages))
    monkeypatch.setattr(Checkpoints, "enter", lambda self, slot: None)
    assert verified(HYBRID)[1]["differing"] > 0
