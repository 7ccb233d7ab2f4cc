"""CPU time of the API and the engine process for each streamed token, without the kernels; prints and records it.

The server is the real one, but its kernels sleep as long as they would compute, and what the sleeping costs is taken
off. Counted is all else that the requests cost, user and system time, from their arrival to their last byte.
"""

import ctypes as C
import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Literal, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import records
from benchmarks.command_line import model_of, parser
from benchmarks.paced_server import STEP_SECONDS, shared_clock
from parkway.bench.figures import Effort, take_turns
from parkway.bench.report import json_line
from parkway.bench.served import Served, served
from parkway.bench.stream import Stream
from parkway.bench.windows import Median, Watch, Window, median
from parkway.config import EngineSettings
from parkway.machine import machine, versions

COMMAND = "python -m benchmarks.server_cpu"
FIGURE = "server CPU per streamed token, API and engine process, kernels excluded"
REACH_MICROSECONDS, REACH_TOOLS = 60.0, 90.0
DEFAULT_SLOTS = EngineSettings().parallel
ANSWER_TOKENS = 256
QUESTION = (
    "Tell me about a park and a way through it, with all the trees, birds and benches that one passes there. " * 4
)
_PACKAGES = ("fastapi", "msgspec", "uvicorn", "uvloop")
_LOOK_SECONDS = 0.02
_ROOT = Path(__file__).parent.parent


class Load(NamedTuple):
    """So many streams at once; `pace`: whether a step takes as long as the real kernels, or no time at all; `tools`:
    whether the answers are looked through for calls."""

    streams: int
    pace: Literal["paced", "back to back"] = "paced"
    tools: bool = False

    def __str__(self) -> str:
        told = f"{self.streams} stream{'s' if self.streams > 1 else ''}"
        told += ", tools parsed" if self.tools else ""
        return told if self.pace == "paced" else f"{told}, steps back to back"

    @property
    def reach(self) -> float:
        return REACH_TOOLS if self.tools else REACH_MICROSECONDS


LOADS = (Load(1), Load(4), Load(16), Load(4, "back to back"), Load(16, tools=True), Load(4, "back to back", tools=True))
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
"""Between paced steps the processes sleep; back to back shows what the code alone costs, without waking cold."""


class Cost(NamedTuple):
    """Microseconds of CPU for each streamed token."""

    api: float
    engine: float

    @property
    def whole(self) -> float:
        return self.api + self.engine


class Round:
    """So many streams at once, from their arrival to their end; `costs` keeps what each round cost."""

    def __init__(self, server: Served, load: Load, pacing: C.c_int64) -> None:
        self._server = server
        self._streams = load.streams
        self._more = {"tools": [TOOL]} if load.tools else {}
        # A parser holds a blank back that may stand before a call; it goes out with the next token.
        self._least_frames = ANSWER_TOKENS * (9 if load.tools else 10) // 10
        self._pacing = pacing
        self._clocks = [cpu_clock(pid) for pid in server.pids]
        self.costs: list[Cost] = []

    def window(self) -> Window:
        watch, before = Watch({os.getpid(), *self._server.pids}), self._cpu()
        streams = [self._ask() for _ in range(self._streams)]
        while not all(stream.ended for stream in streams):
            time.sleep(_LOOK_SECONDS)
            for stream in streams:
                stream.drain()
        for stream in streams:
            check(stream, self._least_frames)
        tokens = self._streams * ANSWER_TOKENS
        api, engine = (spent / tokens / 1000 for spent in map(int.__sub__, self._cpu(), before))
        self.costs.append(Cost(api, engine))
        return Window(self.costs[-1].whole, watch.others())

    def _cpu(self) -> tuple[int, int]:
        """Nanoseconds of the API and of the engine process until now."""
        api, engine = map(time.clock_gettime_ns, self._clocks)
        return api, engine - self._pacing.value

    def _ask(self) -> Stream:
        asked = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
        return Stream(self._server.address, "/v1/chat/completions", asked | self._more)


def cpu_clock(pid: int) -> int:
    """The clock of all CPU time of a process, user and system, to the nanosecond. Raises OSError."""
    clock = C.c_int()
    if code := C.CDLL(None).clock_getcpuclockid(pid, C.byref(clock)):
        raise OSError(code, os.strerror(code))
    return clock.value


def bare_wake(wakes: int = 300) -> float:
    """Microseconds of CPU that it costs here to wake a process that has slept for a step and does nothing."""
    before = time.thread_time_ns()
    for _ in range(wakes):
        time.sleep(STEP_SECONDS)
    return (time.thread_time_ns() - before) / wakes / 1000


def check(stream: Stream, least: int = ANSWER_TOKENS) -> None:
    """Raises RuntimeError unless the answer is whole and had a frame for each token, or so many at `least`."""
    stream.check()
    if (frames := stream.received.count(b"data: {")) < least:
        raise RuntimeError(f"{frames} frames for {ANSWER_TOKENS} tokens")


def measure(path: Path, load: Load, effort: Effort) -> tuple[Median, Cost]:
    """The median of quiet rounds, and the two processes' own medians, after a round that warms up."""
    slots = max(load.streams, DEFAULT_SLOTS)
    arguments = [sys.executable, "-m", "benchmarks.paced_server", str(path), str(slots)]
    with NamedTemporaryFile() as clock:
        clock.write(bytes(8))
        clock.flush()
        environment = {"PYTHONPATH": str(_ROOT), "PACED_CLOCK": clock.name}
        environment["PACED"] = "yes" if load.pace == "paced" else "no"
        with served(arguments, environment) as server:
            rounds = Round(server, load, shared_clock(Path(clock.name)))
            rounds.window()
            rounds.costs.clear()
            windows = take_turns({"": rounds.window}, effort)[""]
    quiet = [cost for cost, window in zip(rounds.costs, windows, strict=True) if window.quiet] or rounds.costs
    parts = Cost(statistics.median(c.api for c in quiet), statistics.median(c.engine for c in quiet))
    return median(windows), parts


def main() -> None:
    arguments = parser(__doc__, windows=7).parse_args()
    path = model_of(arguments)
    effort = Effort(quiet_windows=arguments.windows, most_windows=5 * arguments.windows)
    measured = {load: measure(path, load, effort) for load in LOADS}
    shown = Table("load", "API process", "engine process", "both", "quiet rounds", title=f"{FIGURE}, µs")
    for load, (whole, parts) in measured.items():
        cells = (f"{parts.api:.1f}", f"{parts.engine:.1f}", f"{whole.value:.1f}", f"{whole.quiet} of {whole.windows}")
        shown.add_row(str(load), *cells)
    Console().print(shown)
    wake = "a paced step wakes the engine, which is taken off, and the API process"
    print(f"Of that, waking a thread that slept costs {bare_wake():.0f} µs here; {wake}.")
    for load, (whole, _) in measured.items():
        if whole.quiet:
            keep(arguments.results, load, whole.value)
        else:
            print(f"Not recorded: with {load}, no round was quiet.")
    rows = [
        {"load": str(load), "api": parts.api, "engine": parts.engine, "both": whole.value, "quiet": whole.quiet}
        for load, (whole, parts) in measured.items()
    ]
    print(json_line({"machine": machine(), "versions": versions(*_PACKAGES), "microseconds_per_token": rows}))


def keep(results: Path, load: Load, microseconds: float) -> None:
    records.write(
        results,
        figure=f"{FIGURE}, {load}",
        value=round(microseconds, 1),
        unit="µs",
        better="lower",
        reach=load.reach,
        command=COMMAND,
        packages=_PACKAGES,
    )


if __name__ == "__main__":
    main()
