"""Engines to try chats in: on the CPU each has a runner of its own, on a GPU they share two. Knows no answer."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from parkway.config import EngineSettings, Switch
from parkway.engine.build import engine_on
from parkway.engine.engine import Engine
from parkway.memory.copies import Copies
from parkway.plan.limits import FOREVER, Knobs, Limits
from parkway.plan.step import PAGE_TOKENS
from parkway.runner import Runner
from parkway.runner.load import Model
from parkway.verify.cast import Chat
from parkway.verify.configurations import Device
from parkway.verify.stand_ins import Elsewhere, Timeless
from parkway.verify.traffic import Occasion

MIB = 2**20
INTERVAL = 2 * PAGE_TOKENS
"""Tokens from one checkpoint to the next: chats are short here."""


class Engines(Protocol):
    """Makes engines one after the other; each is used up before the next is asked for.

    Alone no layer has a ring; together those that see a window have one where there is room, small enough to go round.
    """

    def alone(self, pages: int) -> Engine:
        """A plain engine: one slot, prompts in one chunk, nobody parked, no page shared, one thread or no graphs."""

    def together(self, occasion: Occasion) -> Engine:
        """One as its configuration says."""


def engines_on(
    device: Device, model: Model, settings: EngineSettings, chats: Iterable[Chat], occasions: Iterable[Occasion]
) -> Engines:
    """Engines with room for each of the chats alone and for each of the occasions."""
    if device == "cpu":
        return OwnRunners(model, settings)
    occasions = list(occasions)
    slots = max(occasion.configuration.slots for occasion in occasions)
    pages = max(*(occasion.pages for occasion in occasions), *(chat.pages for chat in chats))
    return SharedRunners(model, replace(settings, parallel=slots, ctx_size=pages * PAGE_TOKENS))


class OwnRunners:
    """`Engines` with exactly as many slots, rows and pages as they may use."""

    def __init__(self, model: Model, settings: EngineSettings) -> None:
        self._model = model
        self._settings = settings

    def alone(self, pages: int) -> Engine:
        rows = pages * PAGE_TOKENS
        settings = replace(self._settings, ctx_size=rows, batch_size=rows, parallel=1, threads=1)
        return _alone(self._model, self._model.runner(settings, rings="never"), pages)

    def together(self, occasion: Occasion) -> Engine:
        configuration = occasion.configuration
        settings = replace(
            self._settings,
            ctx_size=occasion.pages * PAGE_TOKENS,
            parallel=configuration.slots,
            batch_size=occasion.step_rows,
            threads=configuration.threads,
        )
        return _together(self._model, self._model.runner(settings, configuration.chunk, "fitting"), occasion)


class SharedRunners:
    """`Engines` on two runners, with graphs and without: each holds a pool and buffers, and takes long to make.

    An engine uses part of its runner's slots and rows, and pages anywhere in its pool.
    """

    def __init__(self, model: Model, settings: EngineSettings) -> None:
        self._model = model
        self._settings = settings
        self._runners: dict[Switch, Runner] = {}
        self._random = random.Random("pages")

    def alone(self, pages: int) -> Engine:
        return _alone(self._model, self._runner("off"), pages)

    def together(self, occasion: Occasion) -> Engine:
        runner = self._runner(occasion.configuration.graphs)
        pages = self._random.sample(range(runner.pages), occasion.pages)
        return _together(self._model, Elsewhere(runner, pages), occasion)

    def _runner(self, graphs: Switch) -> Runner:
        if graphs not in self._runners:
            settings = replace(self._settings, cuda_graphs=graphs)
            self._runners[graphs] = self._model.runner(settings, rings="fitting" if graphs == "on" else "never")
        return self._runners[graphs]


def _alone(model: Model, runner: Runner, pages: int) -> Engine:
    limits = _limits(runner, slots=1, pages=pages, rows=pages * PAGE_TOKENS)
    return engine_on(model, runner, replace(limits, prefix_cache=False, parks=False), runner.copies(0, beside=False))


def _together(model: Model, runner: Runner, occasion: Occasion) -> Engine:
    configuration = occasion.configuration
    copies = Timeless(_copies(runner, occasion))
    slots, scored_rows = configuration.slots, occasion.scored_rows
    limits = replace(
        _limits(runner, slots=slots, pages=occasion.pages, rows=occasion.step_rows),
        logit_rows=min(runner.logit_rows, slots + scored_rows) if scored_rows else runner.logit_rows,
        chunk_tokens=_least(configuration.chunk, runner.rings.chunk if runner.rings else None),
        prefix_cache=configuration.prefix != "cold",
        host_pages=min(copies.pages, occasion.host_pages),
        # A chat that is computed again gets only a little further in each turn: turns would take too long.
        quantum=1.0 if configuration.kept == "copied" else FOREVER,
        knobs=Knobs(park_every=configuration.park_every, forget=True),
    )
    return Engine(runner, limits, engine_on(model, runner, limits, copies).facts, copies, copies.clock)


def _least(*bounds: int | None) -> int | None:
    """Of bounds, None being none."""
    return min((bound for bound in bounds if bound is not None), default=None)


def _copies(runner: Runner, occasion: Occasion) -> Copies:
    # Host pages come in slabs, at the end of which some memory may be lost; what is not used is never taken.
    most = {"copied": 2 * occasion.host_pages * runner.page_bytes, "1 MiB": MIB}
    return runner.copies(most.get(occasion.configuration.kept, 0), beside=occasion.configuration.copying == "async")


def _limits(runner: Runner, *, slots: int, pages: int, rows: int) -> Limits:
    return Limits(
        slots=slots,
        pages=pages,
        n_ctx=pages * PAGE_TOKENS,
        batch_tokens=min(runner.batch_tokens, rows),
        logit_rows=runner.logit_rows,
        ahead=runner.ahead,
        checkpoints=runner.checkpoints,
        interval=INTERVAL,
    )
