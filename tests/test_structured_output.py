"""The example of docs/structured-output.md runs as it stands."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import parkway

DOCUMENT = Path(__file__).parents[1] / "docs" / "structured-output.md"


def test_the_example_of_the_document_runs(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    monkeypatch.setattr(parkway, "LLM", partial(parkway.LLM, smollm2, device="cpu", ctx_size=256), raising=False)
    made: dict[str, Any] = {}
    exec(example, made)
    assert list(made["city"]) == ["city", "people"]
    assert made["answer"].finish_reason == "stop"
    assert 0 < len(made["city"]["city"]) <= 30
