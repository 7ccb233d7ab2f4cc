"""The files that are measured beside llama.cpp hold what it wants, and a worker's answers, or its end, make a row."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.llamacpp_families import NAMES, NOT_DENSE, SEQUENCE, _cells, written
from parkway.bench.command import roomy
from parkway.bench.figures import Figure
from parkway.config import EngineSettings
from parkway.engine.build import build_engine
from parkway.weights.gguf import GgufFile
from tests.checkpoints import TOKENS
from tests.models.transformers_models import FAMILIES

STAND_IN = """#!{python}
import json, sys
for line in sys.stdin:
    name, given = json.loads(line)
    if name == {dies!r}:
        sys.exit(3)
    answers = {{"score": {{"tops": json.load(open({tops!r}))}}, "decode": {{"tokens": 50, "seconds": 0.1}}}}
    print(json.dumps(answers.get(name, {{}})), flush=True)
"""
"""Of an interpreter with llama.cpp in it."""


@pytest.fixture
def tops(tmp_path: Path) -> Path:
    """Every position's most probable tokens, one after the other."""
    path = tmp_path / "tops.json"
    path.write_text(json.dumps([[[token, -0.1 * token] for token in range(len(TOKENS))]] * len(SEQUENCE)))
    return path


def python(tmp_path: Path, tops: Path, dies: str) -> Path:
    path = tmp_path / "python"
    path.write_text(STAND_IN.format(python=sys.executable, tops=str(tops), dies=dies))
    path.chmod(0o755)
    return path


def test_every_family_is_named_and_those_with_experts_or_states_only_when_asked() -> None:
    assert set(NAMES) <= FAMILIES.keys()
    assert {"qwen3moe", "qwen35", "gpt-oss"} <= {name for name in NAMES if NOT_DENSE & FAMILIES[name].said.keys()}


@pytest.mark.parametrize("family", ["qwen35", "qwen35moe"])
def test_turned_lanes_are_in_sections(tmp_path: Path, family: str) -> None:
    """llama.cpp refuses a file of these families that doesn't say how positions in a picture share them."""
    metadata = GgufFile(written(tmp_path, family, "F32")).metadata
    sections, lanes = (metadata[f"{family}.rope.dimension_{of}"] for of in ("sections", "count"))
    assert (len(sections), 2 * sum(sections), sections[3]) == (4, lanes, 0)
    assert build_engine(tmp_path / "model.gguf", roomy(EngineSettings(device="cpu"))).facts.vocab_size == len(TOKENS)


def test_a_row_is_how_far_apart_and_how_fast(tmp_path: Path, tops: Path) -> None:
    cells = _cells(python(tmp_path, tops, "never"), "llama 3", "Q8_0", [Figure("decode", 1)])
    agree, distance, ratio = cells
    assert 0 <= float(agree) < 50
    assert float(distance) > 0.1
    assert ratio.endswith(" x")


@pytest.mark.parametrize("dies", ["load", "score"])
def test_a_file_that_llama_cpp_cannot_load_has_a_row_that_says_so(tmp_path: Path, tops: Path, dies: str) -> None:
    cells = _cells(python(tmp_path, tops, dies), "llama 3", "F32", [])
    assert cells == ["the llama.cpp worker ended with exit code 3"]
