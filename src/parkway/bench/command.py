"""`parkway bench`: every figure through the engine and through HTTP, a table, one JSON line. Knows no other engine."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from parkway.bench.engine_subject import EngineSubject
from parkway.bench.figures import (
    ANSWER_TOKENS,
    FIGURES,
    GPU_FIGURES,
    PROMPT_TOKENS,
    SPARE_TOKENS,
    Effort,
    Figure,
    Subject,
    alternate,
)
from parkway.bench.http_subject import HttpSubject
from parkway.bench.report import Measured, json_line, rows, table, verdict
from parkway.bench.served import command, served
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.machine import machine, versions
from parkway.plan.pages import pages_for
from parkway.plan.step import PAGE_TOKENS
from parkway.runner.cpu_load import CpuModel
from parkway.runner.load import Model, chosen_device, load_model

_PACKAGES = ("fastapi", "msgspec", "uvicorn")
_GPU_PACKAGES = ("torch", "triton")


def run(path: Path, settings: EngineSettings, effort: Effort | None = None) -> int:
    """Measures, prints, and returns the exit code. Raises StartError."""
    device = chosen_device(settings)
    figures = GPU_FIGURES if device == "cuda" else FIGURES
    settings = roomy(replace(settings, device=device), figures)
    model = load_model(path, settings)
    engine = make_engine(model, settings)
    with served(command(path, settings)) as server, closing(HttpSubject(server, model.vocab_size)) as through_http:
        subjects: dict[str, Subject] = {"engine": EngineSubject(engine), "HTTP": through_http}
        measured = measure(subjects, effort or Effort(), figures)
    Console().print(table(model.name, measured))
    print(verdict(measured))
    asked = {"model": model.name, "settings": asdict(settings)}
    print(json_line(about(model, settings) | asked | {"figures": rows(measured)}))
    return 0


def about(model: Model, settings: EngineSettings) -> dict[str, Any]:
    """What the figures hold for: machine, versions, and everything that chose the kernels."""
    told: dict[str, Any] = {"machine": machine(), "device": settings.device, "numerics": settings.numerics}
    if isinstance(model, CpuModel):
        told |= {"versions": versions(*_PACKAGES), "isa": model.isa}
    else:
        told |= {"versions": versions(*_PACKAGES, *_GPU_PACKAGES)}
    return told | {"fingerprint": model.fingerprint}


def roomy(settings: EngineSettings, figures: Sequence[Figure] = FIGURES) -> EngineSettings:
    """The settings with slots and pages for the most streams and the longest prompt that a figure has."""
    streams = max(figure.size for figure in figures if figure.kind == "decode")
    prompt = max(figure.size for figure in figures if figure.kind == "prefill")
    pages = max(streams * pages_for(PROMPT_TOKENS + ANSWER_TOKENS + SPARE_TOKENS), pages_for(prompt + 1))
    return replace(
        settings,
        parallel=max(settings.parallel, streams),
        batch_size=max(settings.batch_size, streams) if settings.batch_size else 0,
        ctx_size=max(settings.ctx_size, pages * PAGE_TOKENS),
    )


def measure(subjects: Mapping[str, Subject], effort: Effort, figures: Sequence[Figure] = FIGURES) -> Measured:
    """Every figure of every subject, with a line on stderr that says which is being measured."""
    measured = {}
    with Console(stderr=True).status("") as status:
        for figure in figures:
            status.update(f"{figure}: windows of {', '.join(subjects)} in turns")
            measured[figure] = alternate(figure, subjects, effort)
    return measured
