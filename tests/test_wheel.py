"""Wheels are built from a copy of the package whose compiler is made up, so that nothing is really compiled."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIBRARY = "parkway/backends/cpu/lib/libkernels.so"

BUILD = """
class NoCompiler(Exception):
    pass

def compile_library(folder):
    {body}
"""
COMPILES = "folder.mkdir(); (folder / 'libkernels.so').write_bytes(b'kernels')"
HAS_NO_COMPILER = "raise NoCompiler('there is no compiler; install g++')"
FAILS = "raise ValueError('error: expected semicolon')"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of which a wheel is made, without build leftovers."""
    folder = tmp_path / "checkout"
    leftovers = shutil.ignore_patterns("*.egg-info", "__pycache__", "lib")
    shutil.copytree(ROOT / "src", folder / "src", ignore=leftovers)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def build_wheel(checkout: Path, compiler: str) -> tuple["subprocess.CompletedProcess[str]", list[Path]]:
    (checkout / "src/parkway/backends/cpu/build.py").write_text(BUILD.format(body=compiler))
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "--wheel-dir", "made", "."], cwd=checkout, capture_output=True, text=True)
    return done, sorted((checkout / "made").glob("*.whl"))


def test_a_wheel_with_kernels_is_for_this_platform_and_any_python(checkout: Path) -> None:
    _, (wheel,) = build_wheel(checkout, COMPILES)
    python, abi, platform = wheel.stem.split("-")[2:]
    assert (python, abi) == ("py3", "none")
    assert platform != "any"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(LIBRARY) == b"kernels"
        assert "parkway/cli.py" in archive.namelist()
        assert "parkway/backends/cpu/kernels.cpp" in archive.namelist()


def test_without_a_compiler_a_wheel_is_for_any_platform_and_says_so(checkout: Path) -> None:
    done, (wheel,) = build_wheel(checkout, HAS_NO_COMPILER)
    assert wheel.stem.endswith("-py3-none-any")
    assert "no compiled CPU kernels: there is no compiler; install g++" in done.stdout + done.stderr
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]


def test_kernels_that_do_not_compile_make_no_wheel(checkout: Path) -> None:
    done, wheels = build_wheel(checkout, FAILS)
    assert done.returncode != 0
    assert not wheels
