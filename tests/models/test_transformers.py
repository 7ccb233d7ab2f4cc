"""Every family against transformers: logits and every layer's rows of a folder that it saved, decoding from pages and
states, and the same model as a GGUF file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from parkway.backends.reference import Floats
from tests.models.converted import as_gguf
from tests.models.referred import Referred
from tests.models.transformers_models import FAMILIES, VOCABULARY, Tiny

TOKENS = [(i * 37 + i * i // 5) % VOCABULARY for i in range(100)]
"""Over two pages, all windows, and every original context that is extended."""


@dataclass(frozen=True)
class Made:
    """`rows`: of every layer, as Parkway counts them; `logits`: both as the reference computes them of the folder."""

    tiny: Tiny
    folder: Path
    logits: Floats
    rows: Sequence[Floats]


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    tiny = Tiny(FAMILIES[request.param])
    folder = tiny.save(tmp_path_factory.mktemp("saved") / "tiny")
    return Made(tiny, folder, *Referred(folder).whole(TOKENS))


def test_a_folder_computes_what_transformers_does(made: Made) -> None:
    logits, rows = made.tiny.run(TOKENS)
    family = made.tiny.family
    assert len(rows) == len(made.rows) == made.tiny.config.num_hidden_layers
    for theirs, ours in zip(rows, made.rows, strict=True):
        np.testing.assert_allclose(ours * family.scale, theirs, atol=family.atol, rtol=0)
    np.testing.assert_allclose(made.logits, logits, atol=family.atol, rtol=0)
    assert logits.std() > 0.2


def test_decoding_computes_what_the_whole_does(made: Made) -> None:
    decoded = Referred(made.folder).in_steps(TOKENS, [50, *[1] * 20, 7, 23])
    np.testing.assert_allclose(decoded, made.logits, atol=1e-11, rtol=0)


@pytest.mark.parametrize("made", [name for name, family in FAMILIES.items() if family.in_gguf], indirect=True)
def test_the_same_model_as_a_gguf_file(made: Made, tmp_path: Path) -> None:
    path = as_gguf(made.tiny, made.folder, tmp_path / "tiny.gguf")
    logits, _ = Referred(path).whole(TOKENS)
    np.testing.assert_allclose(logits, made.logits, atol=max(1e-11, made.tiny.family.atol / 10), rtol=0)
