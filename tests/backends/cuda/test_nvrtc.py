"""Where compiled CUDA C++ is kept, and by whom it is found."""

from pathlib import Path

import pytest

from parkway.backends.cuda import nvrtc


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that were compiled."""
    lines: list[str] = []
    monkeypatch.setattr(nvrtc, "_hash", lambda source, line, architecture: f"hash-of-{line}")

    def compile_instead(source: str, line: str, architecture: str) -> tuple[bytes, str]:
        lines.append(line)
        return b"cubin", ""

    monkeypatch.setattr(nvrtc, "compiled", compile_instead)
    return lines


def test_a_kernel_is_compiled_once_and_leaves_one_file(compiled: list[str], cache_folder: Path) -> None:
    assert [nvrtc.kept("a.cu", "line", "sm_90a") for _ in range(2)] == [b"cubin"] * 2
    assert compiled == ["line"]
    assert [path.name for path in (cache_folder / "parkway" / "kernels").iterdir()] == ["hash-of-line.cubin"]


def test_it_lies_where_everything_else_does(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path in XDG_CACHE_HOME counts for nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    nvrtc.kept("a.cu", "line", "sm_90a")
    assert (tmp_path / "home/.cache/parkway/kernels/hash-of-line.cubin").exists()
    assert not (tmp_path / "relative").exists()
