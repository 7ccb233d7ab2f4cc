"""From a model file and settings to an engine. Knows the pieces; knows nothing about how they work."""

from pathlib import Path

from parkway.config import EngineSettings
from parkway.engine.engine import Engine
from parkway.plan.planner import Limits
from parkway.plan.step import PAGE_TOKENS
from parkway.request import Facts
from parkway.runner import Runner
from parkway.runner.load import Model, load_model


def build_engine(path: Path, settings: EngineSettings) -> Engine:
    """Load a model file and build an engine on it. Raises StartError."""
    return make_engine(load_model(path, settings), settings)


def make_engine(
    model: Model,
    settings: EngineSettings,
    *,
    chunk_tokens: int | None = None,
    give_back_every: int = 0,
    prefix_cache: bool = True,
) -> Engine:
    """An engine with a pool of its own on a loaded model. The last three are Limits' knobs. Raises NoRoom."""
    runner = model.runner(settings)
    limits = Limits(
        slots=settings.parallel,
        pages=runner.pages,
        n_ctx=min(settings.ctx_size, runner.pages * PAGE_TOKENS),
        batch_tokens=runner.batch_tokens,
        logit_rows=runner.logit_rows,
        chunk_tokens=chunk_tokens,
        give_back_every=give_back_every,
        ahead=runner.ahead,
        prefix_cache=prefix_cache,
    )
    return engine_on(model, runner, limits)


def engine_on(model: Model, runner: Runner, limits: Limits) -> Engine:
    """An engine on a runner that is there already, within limits that it can meet. One at a time may compute."""
    facts = Facts(
        model=model.name,
        n_ctx=limits.n_ctx,
        slots=limits.slots,
        vocab_size=model.vocab_size,
        fingerprint=model.fingerprint,
        exact=runner.exact,
        bit_check=runner.bit_check,
        weight_bytes=model.weight_bytes,
        pool_bytes=runner.pool_bytes,
    )
    return Engine(runner, limits, facts)
