"""Compiling the CPU kernels: one process does, others wait for it, and one that is killed takes its compilers along."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from parkway.backends.cpu import build, library

COMPILER = """#!/bin/sh
echo $$ >> {folder}/started
sh -c 'echo $$ >> {folder}/started; while [ ! -e {folder}/go ]; do sleep 0.01; done'
while [ "$1" != -o ]; do shift; done
echo made > "$2"
"""
"""Starts a process of its own, as g++ does, and waits until it may go on."""
BUILD = "from parkway.backends.cpu import library; print(library._built(), flush=True)"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder: `started` has a line for each process, none ends before there is `go`."""
    path = tmp_path / "compiler"
    path.write_text(COMPILER.format(folder=tmp_path))
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return tmp_path


def building() -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", BUILD]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(reached: Callable[[], bool]) -> None:
    while not reached():
        time.sleep(0.01)


def started(folder: Path) -> list[int]:
    path = folder / "started"
    return list(map(int, path.read_text().split())) if path.exists() else []


def lives(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_others_wait_and_take_what_the_first_has_made(compiler: Path, cache_folder: Path) -> None:
    units = len(build._units())
    with building() as first:
        until(lambda: len(started(compiler)) == 2 * units)
        with building() as second:
            assert second.stderr is not None
            assert "another process" in second.stderr.readline()
            (compiler / "go").touch()
            made, found = (Path(each.communicate()[0].strip()) for each in (first, second))
    assert made == found
    assert made.read_text() == "made\n"
    assert len(started(compiler)) == 2 * (units + 1), "compiled twice"
    assert [path.name for path in made.parent.iterdir()] == [build.LIBRARY]


def test_a_killed_process_takes_its_compilers_along_and_leaves_nothing_to_trust(
    compiler: Path, cache_folder: Path
) -> None:
    with building() as first:
        until(lambda: len(started(compiler)) == 2 * len(build._units()))
        os.kill(first.pid, signal.SIGKILL)
    until(lambda: not any(map(lives, started(compiler))))
    folder = cache_folder / "parkway" / "kernels" / build.source_hash()
    assert not (folder / build.LIBRARY).exists()
    (compiler / "go").touch()
    library._built()
    assert [path.name for path in folder.iterdir()] == [build.LIBRARY]


def test_whoever_is_interrupted_takes_its_compilers_along(compiler: Path, cache_folder: Path) -> None:
    with building() as first:
        until(lambda: len(started(compiler)) == 2 * len(build._units()))
        os.kill(first.pid, signal.SIGINT)
    until(lambda: not any(map(lives, started(compiler))))
