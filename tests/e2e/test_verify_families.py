"""`parkway verify` over every family, type of weights and format: nothing differs."""

from pathlib import Path

import pytest

from parkway import verify
from parkway.config import EngineSettings
from parkway.models import FAMILIES
from tests.checkpoints import QWEN2, QWEN3, tiny_folder, tiny_gguf, tiny_llama, write_tokenizer
from tests.models import transformers_models
from tests.models.converted import as_gguf
from tests.models.transformers_models import Tiny

CPU = EngineSettings(device="cpu")


def test_every_type_of_weights_is_exact(tmp_path: Path) -> None:
    short = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4", "F16", "F32")
    for types in (short, ("Q4_K", "BF16", "Q6_K", "Q2_K", "Q3_K", "Q5_K", "IQ4_XS")):
        model = tiny_llama(tmp_path / f"{types[0]}.gguf", types=types)
        assert verify.run(model, "full", 1, CPU) == 0


def test_both_formats_are_exact(tmp_path: Path) -> None:
    assert verify.run(tiny_gguf(tmp_path / "tiny.gguf", QWEN2), "quick", 2, CPU) == 0
    assert verify.run(tiny_folder(tmp_path / "tiny", QWEN3), "quick", 2, CPU) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_exact(family: str, tmp_path: Path) -> None:
    tiny = Tiny(transformers_models.FAMILIES[family])
    path = as_gguf(tiny, tiny.save(tmp_path / "tiny"), tmp_path / "tiny.gguf")
    assert verify.run(path, "quick", 2, CPU) == 0


def test_a_mistral_with_its_window_is_exact(tmp_path: Path) -> None:
    """Its window is in folders only."""
    folder = Tiny(transformers_models.FAMILIES["mistral"]).save(tmp_path / "tiny")
    write_tokenizer(folder)
    assert verify.run(folder, "quick", 2, CPU) == 0
