"""Weights that the machine has no memory for are refused before any is packed."""

from types import SimpleNamespace

import psutil
import pytest

from parkway.config import EngineSettings
from parkway.errors import NoRoom
from parkway.runner.cpu_load import load_on_cpu
from parkway.weights.random_checkpoint import RandomCheckpoint
from parkway.weights.shapes import SHAPES

EMBEDDING_AND_HEAD = 2 * 512 * 256
OF_A_LAYER = 2 * 256 * 256 + 2 * 128 * 256 + 3 * 512 * 256
BYTES = 2 * (EMBEDDING_AND_HEAD + 2 * OF_A_LAYER)
"""Of tiny-llama's matrices in BF16, all of whole groups of rows."""


def with_free(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> RandomCheckpoint:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=size_bytes))
    return RandomCheckpoint(SHAPES["tiny-llama"])


def test_weights_that_just_fit_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_on_cpu(with_free(monkeypatch, BYTES), EngineSettings()).weight_bytes == BYTES


def test_weights_that_do_not_fit_say_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = with_free(monkeypatch, BYTES - 2**20)
    monkeypatch.delattr("parkway.runner.cpu_load.pack_matrix")
    with pytest.raises(NoRoom) as raised:
        load_on_cpu(checkpoint, EngineSettings())
    assert str(raised.value) == (
        "the weights need 3 MiB, 2 MiB are free: take a smaller model or a smaller quantisation of it"
    )
