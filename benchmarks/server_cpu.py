"""CPU time of the API and the engine process for each streamed token, without the kernels; prints and records it.

The server is the real one with real kernels, of whose CPU time exactly that within calls into C++ is taken off, and
that of threads that never leave it (kernel_clock.py). Counted is all else that the requests cost, user and system time,
from their arrival to their last byte, masks of grammars too.

The kernels run, because what they do to the rest is a server's lot: they keep the cores awake, which makes a token
cheaper than kernels that sleep instead, and take its caches, which makes it dearer. What the rest does to the kernels
is not counted here, but in the tokens per second. Figures of before, of kernels that slept, are of another definition.
"""

import ctypes as C
import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Literal, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import records
from benchmarks.command_line import model_of, parser
from benchmarks.kernel_clock import EngineClock, cpu_clock, module_path, shared_clock
from parkway.bench.figures import Effort, take_turns
from parkway.bench.report import json_line
from parkway.bench.served import Served, served
from parkway.bench.stream import Stream
from parkway.bench.windows import Median, Watch, Window, median
from parkway.config import EngineSettings
from parkway.machine import machine, versions

COMMAND = "python -m benchmarks.server_cpu"
FIGURE = "server CPU per streamed token, API and engine process, kernels excluded"
_REACH_MICROSECONDS = {"": 60.0, "tools parsed": 90.0, "with a schema": 120.0}
DEFAULT_SLOTS = EngineSettings().parallel
ANSWER_TOKENS = 256
QUESTION = (
    "Tell me about a park and a way through it, with all the trees, birds and benches that one passes there. " * 4
)
_PACKAGES = ("fastapi", "msgspec", "uvicorn", "uvloop")
_LOOK_SECONDS = 0.02
_TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
_BIRD: dict[str, Any] = {"type": "object", "properties": {"bird": {"type": "string"}, "seen": {"type": "integer"}}}
_SCHEMA = {"type": "array", "items": _BIRD | {"required": ["bird", "seen"]}, "minItems": ANSWER_TOKENS}
_MORE: dict[str, dict[str, Any]] = {
    "": {},
    "tools parsed": {"tools": [_TOOL]},
    "with a schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "birds", "schema": _SCHEMA}}},
}


class Load(NamedTuple):
    """So many streams at once; what is asked beside the question; kernels that are real, or none: steps back to back,
    which shows what the code alone costs, with caches to itself."""

    streams: int
    asked: Literal["", "tools parsed", "with a schema"] = ""
    kernels: Literal["real", "none"] = "real"

    def __str__(self) -> str:
        told = [f"{self.streams} stream{'s' if self.streams > 1 else ''}", self.asked]
        told += ["steps back to back"] if self.kernels == "none" else []
        return ", ".join(filter(None, told))

    @property
    def reach(self) -> float:
        return _REACH_MICROSECONDS[self.asked]


LOADS = (
    Load(1),
    Load(4),
    Load(16),
    Load(16, "tools parsed"),
    Load(4, "with a schema"),
    Load(4, kernels="none"),
    Load(4, "tools parsed", "none"),
)


class Cost(NamedTuple):
    """Microseconds of CPU for each streamed token."""

    api: float
    engine: float

    @property
    def whole(self) -> float:
        return self.api + self.engine


class Round:
    """So many streams at once, from their arrival to their end; `costs` keeps what each round cost."""

    def __init__(self, server: Served, load: Load, in_kernels: C.c_int64) -> None:
        api, engine = server.pids
        self._server = server
        self._load = load
        self._api = cpu_clock(api)
        self._engine = EngineClock(engine, in_kernels)
        self.costs: list[Cost] = []

    def window(self) -> Window:
        watch, before = Watch({os.getpid(), *self._server.pids}), self._now()
        streams = [self._ask(seed) for seed in range(self._load.streams)]
        while not all(stream.ended for stream in streams):
            time.sleep(_LOOK_SECONDS)
            for stream in streams:
                stream.drain()
        others = watch.others()
        for stream in streams:
            check(stream)
        tokens = self._load.streams * ANSWER_TOKENS
        api, engine = (spent / tokens / 1000 for spent in map(int.__sub__, self._now(), before))
        self.costs.append(Cost(api, engine))
        return Window(self.costs[-1].whole, others)

    def _now(self) -> tuple[int, int]:
        """Nanoseconds of the API and of the engine process until now."""
        engine = self._engine.now()
        return time.clock_gettime_ns(self._api), engine

    def _ask(self, seed: int) -> Stream:
        asked = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
        asked |= {"seed": seed} | _MORE[self._load.asked]
        return Stream(self._server.address, "/v1/chat/completions", asked)


def check(stream: Stream) -> None:
    """Raises RuntimeError unless the answer is whole and had a frame for nearly each token: some have no text, and a
    parser holds back what may stand before a call."""
    stream.check()
    if (frames := stream.received.count(b"data: {")) < ANSWER_TOKENS * 0.9:
        raise RuntimeError(f"{frames} frames for {ANSWER_TOKENS} tokens")


def measure(path: Path, load: Load, effort: Effort) -> tuple[Median, Cost]:
    """The median of quiet rounds, and the two processes' own medians, after a round that warms up."""
    slots = max(load.streams, DEFAULT_SLOTS)
    arguments = [sys.executable, "-m", "benchmarks.paced_server", str(path), str(slots)]
    with NamedTemporaryFile() as clock:
        clock.write(bytes(8))
        clock.flush()
        environment = {"PYTHONPATH": module_path(), "KERNEL_CLOCK": clock.name, "KERNELS": load.kernels}
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
