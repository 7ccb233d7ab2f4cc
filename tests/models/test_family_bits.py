"""Every family on the CPU backend: what the reference says, and the same bits however chats are cut into steps."""

from pathlib import Path

import numpy as np
import pytest

from tests.models.converted import as_gguf
from tests.models.runs import CHATS, Logits, chunks, cpu_model, logits_of, reference_model, step_of, whole
from tests.models.transformers_models import FAMILIES, VOCABULARY, Tiny


@pytest.fixture(scope="module", params=FAMILIES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where llama.cpp's converter would leave something out, a quantised file elsewhere."""
    tiny = Tiny(FAMILIES[request.param], seed=1)
    at = tmp_path_factory.mktemp("saved")
    folder = tiny.save(at / "tiny")
    return as_gguf(tiny, folder, at / "tiny.gguf", "Q8_0") if tiny.family.in_gguf else folder


@pytest.fixture(scope="module")
def expected(path: Path) -> Logits:
    """All chats in one step, one thread."""
    return logits_of(cpu_model(path), whole())


def test_the_cpu_computes_what_the_reference_does(path: Path, expected: Logits) -> None:
    (places,) = whole()
    wanted = reference_model(path, "f32")(step_of(places))
    made = np.array([np.frombuffer(expected[place], np.float32) for place in places])[:, :VOCABULARY]
    assert np.abs(made - wanted).max() < 1e-4


@pytest.mark.parametrize("tokens", [1, 7, 64])
def test_chunks(path: Path, expected: Logits, tokens: int) -> None:
    assert logits_of(cpu_model(path, threads=2), chunks(tokens)) == expected


def test_each_chat_alone(path: Path, expected: Logits) -> None:
    rig = cpu_model(path)
    alone = logits_of(rig, ([(chat, position) for position in range(length)] for chat, length in CHATS))
    assert alone == expected
