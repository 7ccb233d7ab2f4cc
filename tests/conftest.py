"""What tests of every tier may ask for."""

import os
from pathlib import Path

import pytest
import torch

from parkway.weights import default_model

if not torch.cuda.is_available():  # read when a kernel is defined, so before any test imports one
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the GPU backend's kernels run: the GPU if there is one, else Triton's interpreter on the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default model's file, fetched into the user's cache folder if it isn't there yet."""
    return default_model.fetch()


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder in place of the user's, for this test and its subprocesses."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder
