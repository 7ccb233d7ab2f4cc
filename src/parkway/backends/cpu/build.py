"""Compiles the CPU kernels into one shared library. Needs the standard library alone: setup.py loads it too."""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent
LIBRARY = "libparkway_cpu.so"
_WORK = "work-"
# Contraction would fuse multiplications and additions as the compiler likes, and so differently in two kernels.
FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread")
AVX512 = ("-O3", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mavx2", "-mfma", "-mf16c")
AVX2 = ("-O3", "-mavx2", "-mfma", "-mf16c")

# Kills its process group, which the compiler's own processes are in, when nobody holds the other end of its input.
_WATCHED = """
import os, subprocess, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os.killpg(0, 9)), daemon=True).start()
os._exit(subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL) & 255)
"""
_WATCH = (sys.executable, "-I", "-S", "-c", _WATCHED)


class NoCompiler(Exception):
    """There is no C++ compiler; its text says what to install."""


def compile_library(folder: Path) -> Path:
    """Compiles every source for every instruction set of this architecture into folder/libparkway_cpu.so.

    The library appears by one rename, and compilers end with this process, however it ends. Raises NoCompiler, or
    subprocess.CalledProcessError with the compiler's words.
    """
    compiler = _compiler()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=folder) as work, _lifeline() as lifeline:
        _finish([_popen(_command(compiler, unit, Path(work)), lifeline) for unit in _units()])
        made = Path(work) / LIBRARY
        objects = sorted(str(path) for path in Path(work).glob("*.o"))
        _finish([_popen([compiler, "-shared", "-pthread", "-o", str(made), *objects], lifeline)])
        return made.replace(folder / LIBRARY)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Whoever else wants to compile into the folder waits, and finds no work there that a killed process has left.

    The lock is a file beside the folder; the system lets go of it with the process.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("parkway: another process compiles the CPU kernels; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob(f"{_WORK}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def source_hash() -> str:
    """Names the sources and flags; a library made from others is never loaded."""
    digest = hashlib.sha256(repr((FLAGS, _units())).encode())
    for path in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _units() -> list[tuple[str, str, tuple[str, ...]]]:
    plain: list[tuple[str, str, tuple[str, ...]]] = [
        (name, f"{name}.cpp", ("-O3",)) for name in ("chain", "choose", "pack", "pool")
    ]
    # Plain C++ at -O3 takes three times as long to compile and runs no faster.
    kernels: list[tuple[str, str, tuple[str, ...]]] = [("portable", "kernels.cpp", ("-DPK_ISA=portable", "-O2"))]
    if platform.machine() in ("x86_64", "AMD64"):
        kernels.append(("avx2", "kernels.cpp", ("-DPK_ISA=avx2", "-DPK_AVX2", *AVX2)))
        kernels.append(("avx512", "kernels.cpp", ("-DPK_ISA=avx512", "-DPK_AVX512", *AVX512)))
    return [*kernels, *plain]


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and shutil.which(name):
            return name
    raise NoCompiler(
        "the CPU kernels are not built and there is no C++ compiler; install one "
        "(Debian/Ubuntu: apt install g++, Fedora: dnf install gcc-c++) or a Parkway wheel that has the kernels"
    )


def _command(compiler: str, unit: tuple[str, str, tuple[str, ...]], work: Path) -> list[str]:
    name, source, flags = unit
    return [compiler, *FLAGS, *flags, "-c", str(SOURCES / source), "-o", str(work / f"{name}.o")]


@contextmanager
def _lifeline() -> Iterator[int]:
    """The input of those who are to end with this process. It never brings anything but its end."""
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


def _popen(command: list[str], lifeline: int) -> "subprocess.Popen[str]":
    watched, out = [*_WATCH, *command], subprocess.PIPE
    return subprocess.Popen(watched, stdin=lifeline, stdout=out, stderr=subprocess.STDOUT, text=True, process_group=0)


def _finish(jobs: "list[subprocess.Popen[str]]") -> None:
    outputs = [job.communicate()[0] for job in jobs]  # of all, so that none still writes when the first failure is told
    for job, output in zip(jobs, outputs, strict=True):
        if job.returncode:
            watched: Any = job.args
            raise subprocess.CalledProcessError(job.returncode, watched[len(_WATCH) :], output)
