"""`parkway verify`: loads a model once, runs every configuration, prints what came of it."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from parkway.config import EngineSettings
from parkway.runner.load import Model, load_model
from parkway.verify import report
from parkway.verify.configurations import covering, sample
from parkway.verify.traffic import SIZES, Cast
from parkway.verify.trial import Trial, answers_alone, attempt

T = TypeVar("T")


def run(path: Path, mode: Literal["quick", "full"], seed: int) -> int:
    """Compares every chat of every configuration with its answer alone; 1 if one bit differs. Raises StartError."""
    began = time.perf_counter()
    model = load_model(path, EngineSettings())
    trials = _trials(model, Cast.drawn(SIZES[mode], model.vocab_size, seed))
    told = report.summary(trials, mode, seed, time.perf_counter() - began, model.fingerprint)
    Console().print(report.tables(trials))
    print(*report.differences(trials), report.line(told), sep="\n")
    return 1 if told.differing else 0


def _trials(model: Model, cast: Cast) -> list[Trial]:
    occasions = cast.occasions([*covering(cast.seed), *sample(cast.seed, cast.size.sample)])
    with _progress() as progress:
        alone = dict(_shown(progress, "alone", answers_alone(model, cast.chats), len(cast.chats)))
        attempts = (attempt(model, occasion, alone) for occasion in occasions)
        return list(_shown(progress, "together", attempts, len(occasions)))


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True))


def _shown(progress: Progress, what: str, steps: Iterable[T], total: int) -> Iterable[T]:
    return progress.track(steps, total=total, description=what)
