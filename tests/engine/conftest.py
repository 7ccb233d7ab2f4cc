"""A tiny model with random weights and a vocabulary, for tests of answers that are kept to grammars."""

from pathlib import Path

import pytest

from parkway.config import EngineSettings
from parkway.runner.load import Model, load_model
from tests.checkpoints import tiny_llama


@pytest.fixture(scope="package")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny") / "q8_0.gguf", types=("Q8_0",))


@pytest.fixture(scope="package")
def model(tiny: Path) -> Model:
    return load_model(tiny, EngineSettings(device="cpu"))
