"""Kernels stay inside their memory: the pool lies against a page that may not be touched."""

import ctypes as C
import mmap
import subprocess
import sys
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from parkway.backends.reference import ReferenceStep
from tests.backends import rig
from tests.backends.cases import ATTENTION_CASES

LIBC = C.CDLL(None, use_errno=True)
LIBC.mmap.restype = C.c_void_p
LIBC.mmap.argtypes = [C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.c_int, C.c_long]
LIBC.mprotect.argtypes = [C.c_void_p, C.c_size_t, C.c_int]


@dataclass
class FencedMemory:
    """What a rig needs of Memory; the byte behind its last one can't be read."""

    size_bytes: int
    purpose: str

    def __post_init__(self) -> None:
        room = -(-self.size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        start = LIBC.mmap(None, room + mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, anonymous, -1, 0)
        assert LIBC.mprotect(start + room, mmap.PAGESIZE, 0) == 0
        self.address = start + room - self.size_bytes


def attend_in_the_last_page(name: str, isa: str, activations: str) -> None:
    """Runs in a process of its own, which a kernel that reads too far ends."""
    case = ATTENTION_CASES[name]
    with patch("tests.backends.rig.Memory", FencedMemory):
        made = rig.cpu_rig(case.record, isa=isa, activations=activations, **case.machine)
    made.run(ReferenceStep(range(64), range(64), [(rig.PAGES - 1,)] * 64, range(64)))


@pytest.mark.parametrize("activations", ["int8", "f32"])
@pytest.mark.parametrize("isa", rig.ISAS)
def test_attention_reads_nothing_behind_the_pool(isa: str, activations: str) -> None:
    calls = [f"attend_in_the_last_page({name!r}, {isa!r}, {activations!r})" for name in ATTENTION_CASES]
    script = "\n".join(["from tests.backends.test_bounds import attend_in_the_last_page", *calls])
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=120).returncode == 0
