"""Compiles the CPU kernels into one shared library. Needs the standard library alone: setup.py loads it too."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
LIBRARY = "libparkway_cpu.so"
# Contraction would fuse multiplications and additions as the compiler likes, and so differently in two kernels.
FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread")
AVX512 = ("-O3", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mavx2", "-mfma", "-mf16c")
AVX2 = ("-O3", "-mavx2", "-mfma", "-mf16c")


class NoCompiler(Exception):
    """There is no C++ compiler; its text says what to install."""


def compile_library(folder: Path) -> Path:
    """Compiles every source for every instruction set of this architecture into folder/libparkway_cpu.so.

    The library appears by one rename, so that two processes may compile at once. Raises NoCompiler, or
    subprocess.CalledProcessError with the compiler's words.
    """
    compiler = _compiler()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        jobs = [_start(compiler, unit, Path(work)) for unit in _units()]
        _finish(jobs)
        made = Path(work) / LIBRARY
        objects = sorted(str(path) for path in Path(work).glob("*.o"))
        _finish([_popen([compiler, "-shared", "-pthread", "-o", str(made), *objects])])
        return made.replace(folder / LIBRARY)


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


def _start(compiler: str, unit: tuple[str, str, tuple[str, ...]], work: Path) -> "subprocess.Popen[str]":
    name, source, flags = unit
    return _popen([compiler, *FLAGS, *flags, "-c", str(SOURCES / source), "-o", str(work / f"{name}.o")])


def _popen(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _finish(jobs: "list[subprocess.Popen[str]]") -> None:
    outputs = [job.communicate()[0] for job in jobs]  # of all, so that none still writes when the first failure is told
    for job, output in zip(jobs, outputs, strict=True):
        if job.returncode:
            raise subprocess.CalledProcessError(job.returncode, job.args, output)
