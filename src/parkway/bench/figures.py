"""What is measured, and how the windows of one figure alternate between subjects. Knows no subject's insides."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, NamedTuple, Protocol

from parkway.bench.windows import Median, Watch, Window, median

PROMPT_TOKENS, ANSWER_TOKENS = 100, 256
"""Of every stream of a decode figure."""
SPARE_TOKENS = 16
"""Answer tokens beyond those: the first streams decode while the last still prefill."""


class Timed(NamedTuple):
    tokens: int
    seconds: float


class Subject(Protocol):
    """Something that prefills and decodes. Prompts are random token ids, so that none has been seen before."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that it consists of."""

    def prefill(self, tokens: int, seconds: float) -> Timed:
        """Computes prompts of that many tokens, one after the other, until the time has passed; one at least."""

    def ready(self, streams: int, answer_tokens: int) -> None:
        """Sees to it that so many streams are past their prompts, each with at least so many answer tokens to come.

        A stream has a prompt of PROMPT_TOKENS and gives ANSWER_TOKENS.
        """

    def decode(self, seconds: float) -> Timed:
        """Lets the streams decode until the time has passed or one of them is about to end."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Prefill of a prompt of `size` tokens, or decode of `size` streams at once, in tokens per second."""

    kind: Literal["prefill", "decode"]
    size: int

    def __str__(self) -> str:
        if self.kind == "prefill":
            return f"prefill {self.size}"
        return f"decode, {self.size} stream{'s' if self.size > 1 else ''}"


FIGURES = (
    Figure("prefill", 256),
    Figure("prefill", 512),
    Figure("decode", 1),
    Figure("decode", 4),
    Figure("decode", 16),
)
"""Of every device."""

GPU_FIGURES = (*FIGURES, Figure("prefill", 4096), Figure("decode", 64))
"""Of a GPU, which more rows keep busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long one figure is measured: until every subject has enough quiet windows, or one of the limits is met."""

    window_seconds: float = 0.5
    quiet_windows: int = 9
    most_windows: int = 45
    patience_seconds: float = 120.0


def alternate(figure: Figure, subjects: Mapping[str, Subject], effort: Effort) -> dict[str, Median]:
    """One figure of every subject, their windows taken in turns, so that the same hour is good or bad for all."""
    meters = {name: Meter(subject, figure, effort.window_seconds) for name, subject in subjects.items()}
    taken = take_turns({name: meter.window for name, meter in meters.items()}, effort)
    return {name: median(windows) for name, windows in taken.items()}


def take_turns(windows_of: Mapping[str, Callable[[], Window]], effort: Effort) -> dict[str, list[Window]]:
    """Windows of each, in turns, until the effort has been made."""
    taken: dict[str, list[Window]] = {name: [] for name in windows_of}
    deadline = perf_counter() + effort.patience_seconds
    for _ in range(effort.most_windows):
        for name, window in windows_of.items():
            taken[name].append(window())
        fewest = min(sum(window.quiet for window in windows) for windows in taken.values())
        if fewest >= effort.quiet_windows or perf_counter() >= deadline:
            break
    return taken


class Meter:
    """Takes windows of one figure of one subject.

    Every decode window begins right behind the prompts: a faster subject must not decode at a greater depth.
    """

    def __init__(self, subject: Subject, figure: Figure, seconds: float) -> None:
        self._subject = subject
        self._figure = figure
        self._seconds = seconds

    def window(self) -> Window:
        """One window, in tokens per second."""
        subject, size = self._subject, self._figure.size
        decode = self._figure.kind == "decode"
        if decode:
            subject.ready(size, ANSWER_TOKENS)
        watch = Watch({os.getpid(), *subject.pids})
        timed = subject.decode(self._seconds) if decode else subject.prefill(size, self._seconds)
        return Window(timed.tokens / timed.seconds, watch.others())
