"""Metadata that asks for what no forward pass of the family does: refused by name, unless it asks for nothing."""

from pathlib import Path
from typing import Any

import pytest

from parkway.backends.reference import ReferencePack
from parkway.errors import Unsupported
from parkway.models import build_model
from parkway.weights import open_checkpoint
from tests.models.altered import altered
from tests.models.converted import ARCHITECTURES, as_gguf
from tests.models.transformers_models import FAMILIES, Tiny


def with_values(family: str, values: dict[str, Any], at: Path) -> Path:
    tiny = Tiny(FAMILIES[family])
    good = as_gguf(tiny, tiny.save(at / "tiny"), at / "good.gguf")
    architecture = ARCHITECTURES[tiny.family.name]
    named = {f"{architecture}.{key}": value for key, value in values.items()}
    return altered(good, architecture=architecture, values=named)


def refusal(family: str, values: dict[str, Any], at: Path) -> str:
    path = with_values(family, values, at)
    with pytest.raises(Unsupported) as raised:
        build_model(open_checkpoint(path), ReferencePack())
    return str(raised.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("values", [{}, {"attention.sliding_window_pattern": [True, False, True]}], ids=str)
def test_olmo_3_is_named(values: dict[str, Any], tmp_path: Path) -> None:
    told = refusal("olmo2", {"attention.sliding_window": 4096, **values}, tmp_path)
    assert told == "OLMo 3 (olmo2 with windows) is not supported"


def test_an_olmo_2_without_a_window_is_served(tmp_path: Path) -> None:
    path = with_values("olmo2", {"attention.sliding_window": 0}, tmp_path)
    assert build_model(open_checkpoint(path), ReferencePack()).config.windows == (0,)
