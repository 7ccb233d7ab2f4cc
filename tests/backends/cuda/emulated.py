"""CUDA C++ kernels on the CPU, compiled by the host's compiler behind emulated.h: `nvrtc.kernel` for tests."""

import ctypes as C
import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

from parkway.backends.cuda import nvrtc

HERE = Path(__file__).parent
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-Wno-unknown-pragmas")
RUN = """
extern "C" const char *run(const void *arguments, unsigned x, unsigned y, unsigned threads, int late) {
    return run_grid(kernel, arguments, x, y, threads, late);
}
"""


class Kernel:
    """A kernel of the CPU with the launch of one of the GPU. `late`: copies and products happen as late as they may."""

    late = False

    def __init__(self, library: Path) -> None:
        self._run = C.CDLL(str(library)).run
        self._run.restype = C.c_char_p

    def launch(
        self, grid: tuple[int, int], threads: int, shared_bytes: int, arguments: C.Structure, *, pdl: int
    ) -> None:
        """Runs it. Raises RuntimeError if its threads wait for each other in a way that a GPU's may not."""
        assert not pdl
        assert shared_bytes <= 227 * 1024
        wrong = self._run(C.byref(arguments), *grid, threads, int(self.late))
        if wrong:
            raise RuntimeError(wrong.decode())


@cache
def kernel(source: str, line: str) -> Kernel:
    """The kernel that `line` makes of a file of the backend's folder."""
    return compiled(source, line, nvrtc.SOURCES)


def planted(source: str, line: str, file: str, old: str, new: str, folder: Path) -> Kernel:
    """The same with a fault: `new` in place of `old` in a file. `folder` is for the changed sources."""
    for path in _sources(nvrtc.SOURCES):
        text = path.read_text()
        if path.name == file:
            assert old in text
            text = text.replace(old, new)
        (folder / path.name).write_text(text)
    return compiled(source, line, folder)


def compiled(source: str, line: str, folder: Path) -> Kernel:
    """Compiles where the cache folder has none of these sources yet."""
    text = f'#include "emulated.h"\n#include "{source}"\n{line}\n{RUN}'
    digest = hashlib.sha256(repr((FLAGS, text)).encode())
    for path in (*_sources(folder), *_sources(HERE)):
        digest.update(path.read_bytes())
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    library = cache_home / "parkway" / "kernels" / f"emulated-{digest.hexdigest()[:24]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        part = library.with_suffix(f".{os.getpid()}")
        command = ["g++", *FLAGS, f"-I{folder}", f"-I{HERE}", "-x", "c++", "-", "-o", str(part)]
        subprocess.run(command, input=text, text=True, check=True)
        part.replace(library)
    return Kernel(library)


def _sources(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.cu"), *folder.glob("*.h")])
