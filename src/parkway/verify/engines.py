"""Engines to try chats in: on the CPU each has a runner of its own, on a GPU they share two. Knows no answer."""

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from msgspec import structs

from parkway.config import EngineSettings, Switch
from parkway.engine.build import engine_on, make_engine
from parkway.engine.engine import Engine
from parkway.plan.planner import Limits
from parkway.plan.step import PAGE_TOKENS, Chunk, StepPlan
from parkway.runner import Runner, Sampled
from parkway.runner.load import Model
from parkway.verify.configurations import Device
from parkway.verify.traffic import Chat, Occasion


class Engines(Protocol):
    """Makes engines one after the other; each is used up before the next is asked for."""

    def alone(self, pages: int) -> Engine:
        """A plain engine: one slot, prompts in one chunk, pages never given back or shared, one thread or no graphs."""

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
        return make_engine(self._model, settings, prefix_cache=False)

    def together(self, occasion: Occasion) -> Engine:
        configuration = occasion.configuration
        settings = replace(
            self._settings,
            ctx_size=occasion.pages * PAGE_TOKENS,
            parallel=configuration.slots,
            batch_size=occasion.step_rows,
            threads=configuration.threads,
        )
        return make_engine(
            self._model,
            settings,
            chunk_tokens=configuration.chunk,
            give_back_every=occasion.give_back_every,
            prefix_cache=configuration.prefix != "cold",
        )


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
        limits = self._limits(self._runner("off"), slots=1, pages=pages, rows=pages * PAGE_TOKENS)
        return engine_on(self._model, self._runner("off"), replace(limits, prefix_cache=False))

    def together(self, occasion: Occasion) -> Engine:
        configuration = occasion.configuration
        runner = self._runner(configuration.graphs)
        limits = replace(
            self._limits(runner, slots=configuration.slots, pages=occasion.pages, rows=occasion.step_rows),
            chunk_tokens=configuration.chunk,
            give_back_every=occasion.give_back_every,
            prefix_cache=configuration.prefix != "cold",
        )
        pages = self._random.sample(range(runner.pages), occasion.pages)
        return engine_on(self._model, Elsewhere(runner, pages), limits)

    def _runner(self, graphs: Switch) -> Runner:
        if graphs not in self._runners:
            self._runners[graphs] = self._model.runner(replace(self._settings, cuda_graphs=graphs))
        return self._runners[graphs]

    def _limits(self, runner: Runner, *, slots: int, pages: int, rows: int) -> Limits:
        return Limits(
            slots=slots,
            pages=pages,
            n_ctx=pages * PAGE_TOKENS,
            batch_tokens=min(runner.batch_tokens, rows),
            logit_rows=runner.logit_rows,
            ahead=runner.ahead,
        )


class Elsewhere:
    """A `Runner` whose page p lies at `pages[p]` of another's: where a page lies is part of the traffic too."""

    def __init__(self, runner: Runner, pages: Sequence[int]) -> None:
        self.pages = len(pages)
        self.pool_bytes = runner.pool_bytes
        self.batch_tokens = runner.batch_tokens
        self.logit_rows = runner.logit_rows
        self.exact = runner.exact
        self.bit_check = runner.bit_check
        self.ahead = runner.ahead
        self._runner = runner
        self._places = pages
        self._planned: deque[tuple[Chunk, ...]] = deque()
        self._tables: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def launch(self, plan: StepPlan) -> None:
        self._planned.append(plan.chunks)
        self._runner.launch(structs.replace(plan, chunks=tuple(map(self._moved, plan.chunks))))

    def land(self) -> list[tuple[Chunk, Sampled]]:
        found = (sampled for _, sampled in self._runner.land())
        return list(zip(self._planned.popleft(), found, strict=True))

    def _moved(self, chunk: Chunk) -> Chunk:
        """The same chunk elsewhere. A table that has not changed stays the same object, by which a runner knows it."""
        given, moved = self._tables.get(chunk.slot, ((), ()))
        if given is not chunk.pages:
            moved = tuple(self._places[page] for page in chunk.pages)
            self._tables[chunk.slot] = chunk.pages, moved
        return structs.replace(chunk, pages=moved)
