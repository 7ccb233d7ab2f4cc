"""What tests of every tier may ask for."""

from pathlib import Path

import pytest

from parkway.weights import default_model


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
