"""The matrix unit's shapes are one setting of a thread, which other libraries change too."""

import subprocess
import sys
from pathlib import Path

import pytest

from parkway.backends.cpu.library import best_isa

SCRIPT = """
import ctypes, mmap
from tests.backends.cases import CASES
from tests.backends.rig import chats, cpu_rig, same_bits

memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(bytes.fromhex("c4e27849c0c3"))  # tilerelease; ret
release = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
rig, step = cpu_rig(CASES["linear Q4_0"].record, activations="int8"), chats(40)
first = rig.run(step)
release()
assert all(same_bits(*pair) for pair in zip(first, rig.run(step), strict=True))
"""


@pytest.mark.skipif(best_isa() != "amx", reason="this machine has no matrix unit")
def test_a_step_runs_behind_others_that_have_released_the_unit() -> None:
    """In a process of its own, since it would die."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
