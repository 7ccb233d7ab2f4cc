"""The C++ library: what can go wrong between its sources and the first kernel is one sentence."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from parkway.backends.cpu import build, library
from parkway.errors import NoRoom, StartError, Unsupported
from tests.backends.rig import ISAS

load = library.library.__wrapped__
"""Loads anew, past what this process has loaded already and goes on using."""


def test_another_abi_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda path: SimpleNamespace(pk_abi_version=lambda: 99))
    with pytest.raises(StartError, match=rf"ABI 99, this Parkway needs {library.ABI_VERSION}; install both anew"):
        load()


def test_a_file_that_is_no_library_is_refused(cache_folder: Path) -> None:
    path = cache_folder / "parkway" / "kernels" / build.source_hash() / build.LIBRARY
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a library")
    with pytest.raises(StartError, match=r"libparkway_cpu\.so: the CPU kernels can't be loaded: "):
        load()


@pytest.mark.usefixtures("cache_folder")
def test_without_a_compiler_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(StartError, match=r"no C\+\+ compiler; install one \(Debian/Ubuntu: apt install g\+\+, "):
        load()


@pytest.mark.usefixtures("cache_folder")
def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho no such instruction >&2\nexit 3\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(StartError, match=r"the CPU kernels did not compile with .*/compiler: no such instruction"):
        load()


def test_a_cache_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        StartError, match=r"/file/parkway/kernels/\w+: the CPU kernels can't be kept there: Not a directory"
    ):
        load()


def test_compiling_leaves_one_file_and_no_work_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_compiler", lambda: "/bin/sh")
    monkeypatch.setattr(build, "_popen", writes_its_output)
    build.compile_library(tmp_path / "kernels")
    assert [path.name for path in (tmp_path / "kernels").iterdir()] == [build.LIBRARY]


def writes_its_output(command: list[str], lifeline: int) -> "subprocess.Popen[str]":
    output = command[command.index("-o") + 1] if "-o" in command else "/dev/null"
    return subprocess.Popen(["sh", "-c", f"echo linked > {output}"], stdout=subprocess.PIPE, text=True)


def test_the_hash_changes_with_any_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for path in build.SOURCES.glob("*.[ch]*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    before = build.source_hash()
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    assert build.source_hash() == before
    (tmp_path / "simd.h").write_bytes((tmp_path / "simd.h").read_bytes() + b"\n")
    assert build.source_hash() != before


@pytest.mark.parametrize("isa", ISAS)
def test_a_kernel_that_there_is_not_is_named(isa: str) -> None:
    with pytest.raises(Unsupported, match="the CPU backend has no kernel linear_int8_IQ2_S"):
        library.kernel(isa, "linear_int8_IQ2_S")


def test_memory_that_the_machine_has_not_is_refused() -> None:
    with pytest.raises(NoRoom, match="no memory for a test: 4,611,686,018,427,387,904 bytes can't be had"):
        library.Memory(2**62, "a test")


def test_memory_is_zeroed_and_writable() -> None:
    memory = library.Memory(5000, "a test")
    assert not memory.array().any()
    memory.array()[:] = 7
    assert (memory.array() == 7).all()
