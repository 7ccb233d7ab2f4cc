"""What kernels cost is taken off once and nothing else is: CPU time that is burnt within them and beside them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.kernel_clock import EngineClock, cpu_clock, module_path, shared_clock


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """A file for a shared clock."""
    path = tmp_path / "clock"
    path.write_bytes(bytes(8))
    return path


WITHIN, IN_THREAD, BESIDE = 40_000_000, 30_000_000, 20_000_000
ENGINE = f"""
import sys, threading, time
from pathlib import Path
from benchmarks.kernel_clock import named, shared_clock, timed

def burn(nanoseconds):
    until = time.thread_time_ns() + nanoseconds
    while time.thread_time_ns() < until:
        pass

def work():
    begin.acquire()
    burn({IN_THREAD})
    done.release()
    begin.acquire()

begin, done = threading.Semaphore(0), threading.Semaphore(0)
named(threading.Thread(target=work, daemon=True).start)()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
kernels = timed(burn, shared_clock(Path(sys.argv[1])))
print("up", flush=True)
sys.stdin.readline()
begin.release()
kernels({WITHIN})
done.acquire()
burn({BESIDE})
print("done", flush=True)
sys.stdin.readline()
"""
"""A stand-in for an engine process: a thread of a pool, one of its own, and one step."""


def test_kernels_are_taken_off_once_and_nothing_else_is(clock: Path) -> None:
    command, variables = [sys.executable, "-c", ENGINE, str(clock)], os.environ | {"PYTHONPATH": module_path()}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, env=variables, stdin=pipe, stdout=pipe) as engine:
        assert engine.stdin
        assert engine.stdout
        assert engine.stdout.readline() == "up\n"
        whole, without = cpu_clock(engine.pid), EngineClock(engine.pid, shared_clock(clock))
        assert len(without.threads) == 1
        first, before = time.clock_gettime_ns(whole), without.now()
        print("step", file=engine.stdin, flush=True)
        assert engine.stdout.readline() == "done\n"
        cost, all_spent = without.now() - before, time.clock_gettime_ns(whole) - first
        engine.kill()
    assert BESIDE <= cost <= all_spent - WITHIN - IN_THREAD


POOL = """
import os, sys
from pathlib import Path
from benchmarks.kernel_clock import EngineClock, named, shared_clock
from parkway.backends.cpu.library import Pool, library
before = len(os.listdir("/proc/self/task"))
library().pk_pool_new = named(library().pk_pool_new)
pool = Pool(4)
named_ones = EngineClock(os.getpid(), shared_clock(Path(sys.argv[1]))).threads
print(len(named_ones), len(os.listdir("/proc/self/task")) - before)
"""


def test_all_threads_of_a_pool_are_named_and_no_other(clock: Path) -> None:
    variables = os.environ | {"PYTHONPATH": module_path()}
    told = subprocess.check_output([sys.executable, "-c", POOL, str(clock)], env=variables, text=True)
    assert told.split() == ["3", "3"]


def test_two_sides_see_one_clock(clock: Path) -> None:
    ours, theirs = shared_clock(clock), shared_clock(clock)
    ours.value += 5
    assert theirs.value == 5


def test_a_cpu_clock_counts_another_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        clock = cpu_clock(process.pid)
        before = time.clock_gettime_ns(clock)
        while time.clock_gettime_ns(clock) == before:
            pass
        process.kill()
    with pytest.raises(OSError, match="No such process"):
        cpu_clock(process.pid)
    assert time.clock_gettime_ns(cpu_clock(os.getpid())) > 0
