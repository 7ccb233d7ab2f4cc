"""`parkway bench`: every figure through the engine and through HTTP, a table, one JSON line. Knows no other engine."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from parkway.bench.engine_subject import EngineSubject
from parkway.bench.figures import ANSWER_TOKENS, FIGURES, MOST_STREAMS, PROMPT_TOKENS, Effort, Subject, alternate
from parkway.bench.http_subject import HttpSubject
from parkway.bench.report import Measured, json_line, rows, table, verdict
from parkway.bench.served import command, served
from parkway.config import EngineSettings
from parkway.engine.build import make_engine
from parkway.machine import machine, versions
from parkway.plan.step import PAGE_TOKENS
from parkway.runner.load import load_model

_PACKAGES = ("fastapi", "msgspec", "pyzmq", "uvicorn")


def run(path: Path, settings: EngineSettings, effort: Effort | None = None) -> int:
    """Measures, prints, and returns the exit code. Raises StartError."""
    settings = roomy(settings)
    model = load_model(path, settings)
    engine = make_engine(model, settings)
    with served(command(path, settings)) as server, closing(HttpSubject(server, model.vocab_size)) as through_http:
        measured = measure({"engine": EngineSubject(engine), "HTTP": through_http}, effort or Effort())
    Console().print(table(model.name, measured))
    print(verdict(measured))
    about = {"machine": machine(), "versions": versions(*_PACKAGES), "isa": model.isa, "fingerprint": model.fingerprint}
    asked = {"model": model.name, "settings": asdict(settings)}
    print(json_line(about | asked | {"figures": rows(measured)}))
    return 0


def roomy(settings: EngineSettings) -> EngineSettings:
    """The settings with slots and pages for the most streams that a figure has."""
    pages = -(-(PROMPT_TOKENS + ANSWER_TOKENS + MOST_STREAMS) // PAGE_TOKENS)
    return replace(
        settings,
        parallel=max(settings.parallel, MOST_STREAMS),
        batch_size=max(settings.batch_size, MOST_STREAMS),
        ctx_size=max(settings.ctx_size, MOST_STREAMS * pages * PAGE_TOKENS),
    )


def measure(subjects: Mapping[str, Subject], effort: Effort) -> Measured:
    """Every figure of every subject, with a line on stderr that says which is being measured."""
    measured = {}
    with Console(stderr=True).status("") as status:
        for figure in FIGURES:
            status.update(f"{figure}: windows of {', '.join(subjects)} in turns")
            measured[figure] = alternate(figure, subjects, effort)
    return measured
