"""Picks the fastest of the configurations that the bit check has passed, by timing them; remembers them on disk.

The pick changes speed only: every candidate gives the same bits.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from parkway.backends.bit_check import Verdict
from parkway.backends.cuda.device import capturing

LAUNCHES = 8
"""Of one candidate in one timed run: enough to hide what a run costs around them."""
RUNS, LEAST_RUNS, ENOUGH_SECONDS = 20, 3, 0.01
"""Of a candidate: so many, or fewer where they take so long together. One run of a short kernel is off by several
percent, which is more than candidates differ by."""


class Tuner:
    """Remembers picks at `path`, a JSON file named for what they hold for. Without a GPU the first candidate wins."""

    def __init__(self, path: Path, verdict: Verdict) -> None:
        self._path = path
        self._verdict = verdict
        self._picks = _read(path)

    def known(self, operation: str, name: str, candidates: Sequence[Any]) -> Any | None:
        """What needs no timing: the only one that may be used, or what was picked before. Raises BitCheckFailed."""
        allowed = self._verdict.allowed(operation, candidates)
        if len(allowed) == 1 or not torch.cuda.is_available():
            return allowed[0]
        return next((config for config in allowed if list(config) == self._picks.get(f"{operation} {name}")), None)

    def pick(self, operation: str, name: str, candidates: Sequence[Any], launch: Callable[[Any, int], object]) -> Any:
        """The fastest of the candidates that may be used; `launch(config, i)` launches one for the i-th time."""
        allowed = self._verdict.allowed(operation, candidates)
        best = min(allowed, key=lambda config: seconds(lambda i: launch(config, i)))
        self._picks[f"{operation} {name}"] = list(best)
        self._save()
        return best

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._picks, indent=0, sort_keys=True))
        part.replace(self._path)


def seconds(launch: Callable[[int], object]) -> float:
    """Device seconds of one launch: the least of some runs of a captured graph of some."""
    launch(0)  # compiles
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with capturing(graph, stream):
        for i in range(LAUNCHES):
            launch(i)
    graph.replay()
    times = list[float]()
    while len(times) < LEAST_RUNS or (len(times) < RUNS and sum(times) < ENOUGH_SECONDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return min(times) / LAUNCHES


def _read(path: Path) -> dict[str, list[int]]:
    try:
        picks = json.loads(path.read_text())
        return {str(key): [int(number) for number in config] for key, config in picks.items()}
    except (OSError, ValueError, AttributeError, TypeError):  # not there, or damaged: time again
        return {}
