"""From a model file and settings to an engine. Knows the pieces; knows nothing about how they work."""

from pathlib import Path

from parkway.config import EngineSettings
from parkway.engine.engine import Engine
from parkway.plan.planner import Limits
from parkway.plan.step import PAGE_TOKENS
from parkway.request import Facts
from parkway.runner.load import Model, load_model, make_runner


def build_engine(path: Path, settings: EngineSettings) -> Engine:
    """Load a model file and build an engine on it. Raises StartError."""
    return make_engine(load_model(path, settings), settings)


def make_engine(
    model: Model, settings: EngineSettings, *, chunk_tokens: int | None = None, give_back_every: int = 0
) -> Engine:
    """An engine with a pool of its own on a loaded model. The last two are Limits' knobs. Raises NoRoom."""
    runner = make_runner(model, settings)
    n_ctx = min(settings.ctx_size, runner.pages * PAGE_TOKENS)
    limits = Limits(
        slots=settings.parallel,
        pages=runner.pages,
        n_ctx=n_ctx,
        batch_tokens=settings.batch_size,
        logit_rows=runner.logit_rows,
        chunk_tokens=chunk_tokens,
        give_back_every=give_back_every,
    )
    facts = Facts(
        model=model.name,
        n_ctx=n_ctx,
        slots=settings.parallel,
        vocab_size=model.vocab_size,
        fingerprint=model.fingerprint,
        weight_bytes=model.weight_bytes,
        pool_bytes=runner.pool_bytes,
    )
    return Engine(runner, limits, facts)
