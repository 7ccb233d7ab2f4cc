"""From a model file and settings to an engine. Knows the pieces; knows nothing about how they work."""

import logging
import os
from pathlib import Path

import psutil

from parkway.config import AUTOMATIC, EngineSettings
from parkway.engine.engine import Engine
from parkway.engine.knobs import knobs_from
from parkway.errors import BadSetting
from parkway.memory.copies import Copies
from parkway.memory.faults import faulty
from parkway.plan.limits import FOREVER, Knobs, Limits, interval_of
from parkway.plan.step import PAGE_TOKENS
from parkway.report import Facts
from parkway.runner import Runner
from parkway.runner.fit import told
from parkway.runner.load import Model, load_model

logger = logging.getLogger(__name__)

MACHINE_SHARE = 0.25
"""Of the machine's memory, for parked chats, unless --preempt-ram says otherwise."""


def build_engine(path: Path, settings: EngineSettings) -> Engine:
    """Load a model file and build an engine on it, with the test knobs of the environment. Raises StartError."""
    knobs = knobs_from(os.environ)
    return make_engine(load_model(path, settings), settings, knobs=knobs)


def make_engine(
    model: Model,
    settings: EngineSettings,
    *,
    chunk_tokens: int | None = None,
    prefix_cache: bool = True,
    knobs: Knobs = Knobs(),  # noqa: B008 (frozen)
) -> Engine:
    """An engine with a pool of its own on a loaded model. The last three are those of Limits. Raises NoRoom; BadSetting
    where a context is too short to be shifted."""
    runner = model.runner(settings, chunk_tokens)
    shifts = settings.context_shift == "on"
    if shifts and runner.n_ctx <= PAGE_TOKENS:
        raise BadSetting("--context-shift", f"needs a context of more than {PAGE_TOKENS} tokens, not {runner.n_ctx}")
    copies = faulty(runner.copies(host_bytes(settings, runner), beside=settings.preempt_async == "on"), os.environ)
    copies.make_ready()
    limits = Limits(
        slots=settings.parallel,
        pages=runner.pages,
        n_ctx=runner.n_ctx,
        batch_tokens=runner.batch_tokens,
        logit_rows=runner.logit_rows,
        chunk_tokens=runner.rings.chunk if runner.rings else chunk_tokens,
        ahead=runner.ahead,
        prefix_cache=prefix_cache,
        host_pages=copies.pages,
        parks=settings.preempt != "off",
        resume=settings.preempt_resume,
        quantum=settings.preempt_quantum or FOREVER,
        checkpoints=runner.checkpoints,
        interval=interval_of(runner.batch_tokens, runner.rings.window if runner.rings else 0),
        shifts=shifts,
        knobs=knobs,
    )
    pool = f"KV pool of {runner.pages * PAGE_TOKENS:,} tokens"
    sizes = {
        "weights": model.weight_bytes,
        pool: runner.pool_bytes,
        f"states of {limits.slots} chats": runner.state_bytes - runner.ring_bytes - runner.checkpoint_bytes,
        f"rings of {limits.slots} chats": runner.ring_bytes,
        f"{limits.checkpoints} checkpoints": runner.checkpoint_bytes,
        "buffers": runner.buffer_bytes,
    }
    logger.info("memory: %s", told(**sizes, **{"host memory for parked chats": limits.host_pages * runner.page_bytes}))
    return engine_on(model, runner, limits, copies)


def host_bytes(settings: EngineSettings, runner: Runner) -> int:
    """Most bytes of host memory for parked chats."""
    if settings.preempt != "copy":
        return 0
    if settings.preempt_ram == AUTOMATIC:
        return min(runner.pool_bytes, int(psutil.virtual_memory().total * MACHINE_SHARE))
    most = settings.parallel * runner.pool_bytes  # more than that can't be parked
    return most if settings.preempt_ram < 0 else min(most, settings.preempt_ram * 2**20)


def engine_on(model: Model, runner: Runner, limits: Limits, copies: Copies) -> Engine:
    """An engine on a runner that is there already, within limits that it can meet. One at a time may compute."""
    facts = Facts(
        model=model.name,
        n_ctx=limits.n_ctx,
        slots=limits.slots,
        vocab_size=model.vocab_size,
        fingerprint=model.fingerprint,
        shifts=limits.shifts,
        exact=runner.exact,
        bit_check=runner.bit_check,
        weight_bytes=model.weight_bytes,
        pool_bytes=runner.pool_bytes,
        state_bytes=runner.state_bytes - runner.checkpoint_bytes,
        checkpoint_bytes=runner.checkpoint_bytes,
        host_bytes=limits.host_pages * runner.page_bytes,
        embedding_width=runner.embedding_width,
    )
    return Engine(runner, limits, facts, copies)
