"""What tests of every tier may ask for."""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

# Read when NumPy and torch are loaded. Each has few numbers here, and threads that wait for more take the cores from
# the other tests that run, and from servers.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pytest
import torch
from hypothesis import HealthCheck, settings

from benchmarks import gemma
from parkway.config import EngineSettings, ModelSettings, RequestDefaults, ServerSettings
from parkway.errors import StartError
from parkway.flags import without_variables
from parkway.weights import default_model

HERE = Path(__file__).parent

# A busy machine is no failure.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

if not torch.cuda.is_available():  # read when a kernel is defined, so before any test imports one
    os.environ["TRITON_INTERPRET"] = "1"


LONG = ("e2e/test_parks", "e2e/test_verify", "backends/cuda/test_quantised_compile", "backends/cuda/test_quantised")
"""Test files that take longest, the longest first."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side, files that take long begin first, so that nobody waits for the last of them at the end."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    name = item.path.relative_to(HERE).with_suffix("").as_posix()
    return LONG.index(name) if name in LONG else len(LONG)


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the GPU backend's kernels run: the GPU if there is one, else Triton's interpreter on the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default model's file, fetched into the user's cache folder if it isn't there yet."""
    return default_model.fetch()


@pytest.fixture(scope="session")
def gemma3() -> Path:
    """Gemma 3 270M, Q4_K_M, fetched likewise; the test is skipped where it can't be downloaded."""
    try:
        return gemma.fetch()
    except StartError as error:
        if "could not be downloaded" in str(error):
            pytest.skip(f"Gemma 3 270M: {error}")
        raise


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder in place of the user's, for this test and its subprocesses."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which no setting is said."""
    kept = without_variables(os.environ, EngineSettings, ModelSettings, RequestDefaults, ServerSettings)
    for name in os.environ.keys() - kept.keys():
        monkeypatch.delenv(name)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, no_variables: None) -> list[tuple[Any, ...]]:
    """The arguments with which serve, verify, bench or chat were started; nothing is started."""
    seen: list[tuple[Any, ...]] = []

    def run(*arguments: Any) -> int:
        seen.append(arguments)
        return 0

    started = {"api.server": ("serve",), "verify": ("run",), "bench": ("run",), "chat": ("run", "run_with_server")}
    for module, functions in started.items():
        name = f"parkway.{module}"
        stand_in = ModuleType(name)
        for function in functions:
            monkeypatch.setattr(stand_in, function, run, raising=False)
        monkeypatch.setitem(sys.modules, name, stand_in)
        parent, _, child = name.rpartition(".")
        monkeypatch.setattr(import_module(parent), child, stand_in, raising=False)
    return seen
