"""`parkway verify`: loads a model once, runs every configuration, prints what came of it."""

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from parkway.config import EngineSettings
from parkway.runner.load import Model, chosen_device, load_model
from parkway.verify import report
from parkway.verify.cast import SIZES, Cast, Mode
from parkway.verify.configurations import AXES, Device, covering, sample
from parkway.verify.engines import engines_on
from parkway.verify.traffic import occasions
from parkway.verify.trial import Trial, answers_alone, attempt

T = TypeVar("T")


def run(path: Path, mode: Mode, seed: int, settings: EngineSettings | None = None) -> int:
    """Compares every chat of every configuration with its answer alone; 1 if one bit differs, or if a configuration has
    not tried what its name says. Raises StartError.

    `settings` say which device and kernels; slots, pages, chunks, parks and the prefix cache are the configurations'.
    """
    began = time.perf_counter()
    settings = settings or EngineSettings()
    device = chosen_device(settings)
    axes = AXES[device]
    model = load_model(path, replace(settings, device=device))
    cast = Cast.drawn(SIZES[device][mode].beyond(model.window), model.vocab_size, seed)
    trials = _trials(model, cast, device, settings)
    seconds = time.perf_counter() - began
    told = report.summary(trials, device=device, mode=mode, seed=seed, seconds=seconds, fingerprint=model.fingerprint)
    Console(width=max(Console().width, report.WIDTH)).print(report.tables(trials, axes))
    print(*report.differences(trials, axes), *report.missed(trials, axes), report.line(told), sep="\n")
    return 1 if told.differing or told.missed else 0


def _trials(model: Model, cast: Cast, device: Device, settings: EngineSettings) -> list[Trial]:
    axes = AXES[device]
    tried = occasions(cast, [*covering(axes, cast.seed), *sample(axes, cast.seed, cast.size.sample)])
    engines = engines_on(device, model, settings, cast.chats, tried)
    with _progress() as progress:
        alone = dict(_shown(progress, "alone", answers_alone(engines, cast.chats), len(cast.chats)))
        attempts = (attempt(engines, occasion, alone) for occasion in tried)
        return list(_shown(progress, "together", attempts, len(tried)))


def _progress() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns, console=Console(stderr=True))


def _shown(progress: Progress, what: str, steps: Iterable[T], total: int) -> Iterable[T]:
    return progress.track(steps, total=total, description=what)
