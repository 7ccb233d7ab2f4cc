"""What kernels cost a server in CPU time, told apart from all else that its processes do.

The line is the call into C++. What the engine's thread spends within that call is kernels, waiting for the other
threads with it: `timed` adds it up, in a file that another process reads. What the threads of the pool spend is kernels
as a whole, since they run nothing else and spin between steps: `named` gives them a name to be found by. The rest is
the server's: planning, writing a batch, reading results, masks, messages, Python's own threads.
"""

import ctypes as C
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

THREAD_NAME = "kernels"
_SETTLE_SECONDS = 0.002

Function = Callable[..., Any]


def shared_clock(path: Path) -> C.c_int64:
    """A number that lies in a file of eight bytes, so that two processes can see it."""
    with path.open("r+b") as file:
        return C.c_int64.from_buffer(mmap.mmap(file.fileno(), 8))


def module_path() -> str:
    """PYTHONPATH for an engine process that finds this folder's modules, and those that this process finds by it."""
    return os.pathsep.join(filter(None, (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH"))))


def timed(kernels: Function, spent: C.c_int64) -> Function:
    """The same function, which adds the CPU nanoseconds of the thread that calls it to `spent`."""
    clock = time.thread_time_ns

    def run(*arguments: Any) -> None:
        started = clock()
        kernels(*arguments)
        spent.value += clock() - started

    return run


def named(start: Function) -> Function:
    """The same function, all of whose threads are called THREAD_NAME. No other thread may begin meanwhile."""

    def begin(*arguments: Any) -> Any:
        before = set(_tasks(os.getpid()))
        started = start(*arguments)
        for task in set(_tasks(os.getpid())) - before:
            (task / "comm").write_text(THREAD_NAME)
        return started

    return begin


def cpu_clock(pid: int) -> int:
    """The clock of all CPU time of a process, user and system, to the nanosecond. Raises OSError."""
    clock = C.c_int()
    if code := C.CDLL(None).clock_getcpuclockid(pid, C.byref(clock)):
        raise OSError(code, os.strerror(code))
    return clock.value


class EngineClock:
    """CPU time of an engine process without its kernels; `spent` is what `timed` has added up there."""

    def __init__(self, pid: int, spent: C.c_int64) -> None:
        self._clock = cpu_clock(pid)
        self._spent = spent
        self.threads = [task for task in _tasks(pid) if (task / "comm").read_text().strip() == THREAD_NAME]

    def now(self) -> int:
        """Nanoseconds until now. Nobody may be asking the engine anything: waits for threads that still spin."""
        while any(_state(task) != "S" for task in self.threads):
            time.sleep(_SETTLE_SECONDS)  # only of a thread that sleeps does the kernel tell all that it has run
        in_threads = sum(int((task / "schedstat").read_text().split()[0]) for task in self.threads)
        return time.clock_gettime_ns(self._clock) - self._spent.value - in_threads


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]
