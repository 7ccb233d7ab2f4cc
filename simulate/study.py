"""The resume-order study: every policy on the same seeded chats, as a table. Knows no planner but its limits."""

import itertools
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import fmean
from typing import Literal

from parkway.config import EngineSettings
from parkway.plan.limits import FOREVER, Knobs, Limits, Victim
from parkway.plan.step import PAGE_TOKENS
from simulate.costs import DEVICES, Costs
from simulate.run import Outcome, Watch, run
from simulate.traffic import traffic

SEEDS = 60
QUANTUM = EngineSettings().preempt_quantum
"""Seconds, as the server's default."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Who comes and what to. `every`: mean seconds between two arrivals; 0: all at once."""

    lengths: str = "measured"
    chats: int = 8
    pool: int = 8192
    device: str = "4b"
    every: float = 0.0

    def __str__(self) -> str:
        arrivals = f"one every {self.every:g} s" if self.every else "at once"
        return f"{self.lengths}, {self.chats} chats {arrivals}, {self.pool} tokens, {self.device}"


@dataclass(frozen=True, slots=True)
class Policy:
    """Who is parked, who comes back first, and for how long one may stay."""

    resume: Literal["head", "pass"]
    victim: Victim = "smallest"
    quantum: float = FOREVER

    def __str__(self) -> str:
        quantum = "no quantum" if self.quantum == FOREVER else f"{self.quantum:g} s"
        return f"{self.resume}, {self.victim}, {quantum}"


STUDY = tuple(Policy(resume) for resume in ("pass", "head"))
"""Row 8: the order alone, with what the study had beside it."""
DEFAULTS = tuple(Policy(resume, "cheapest", QUANTUM) for resume in ("pass", "head"))
"""The order with what Parkway has beside it."""
EVERY_POLICY = tuple(
    Policy(resume, victim, quantum)
    for victim in ("cheapest", "smallest", "largest", "youngest", "oldest")
    for quantum in (FOREVER, QUANTUM)
    for resume in ("pass", "head")
)
SCENE = Scene()
EVERY_SCENE = tuple(
    Scene(lengths, chats, pool)
    for lengths, pool, chats in itertools.product(("measured", "uniform", "heavy"), (8192, 16384), (8, 4))
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy in one scene: means over the seeds, one seed an outcome."""

    policy: Policy
    outcomes: Sequence[Outcome] = field(repr=False)

    @property
    def longest_wait(self) -> float:
        """Seconds: the longest wait of each seed, parked or new, averaged."""
        return fmean(outcome.longest_wait for outcome in self.outcomes)

    @property
    def longest_park(self) -> float:
        """Seconds: the longest that a chat of each seed was parked, averaged."""
        return fmean(outcome.longest_park for outcome in self.outcomes)

    @property
    def latest_start(self) -> float:
        """Seconds: the longest that a chat of each seed waited for its first step, averaged."""
        return fmean(outcome.latest_start for outcome in self.outcomes)

    @property
    def seconds(self) -> float:
        return fmean(outcome.seconds for outcome in self.outcomes)

    @property
    def parks_per_1000(self) -> float:
        """Of all seeds together, per 1,000 tokens of answers."""
        parks = sum(outcome.parks for outcome in self.outcomes)
        return 1000 * parks / sum(outcome.tokens for outcome in self.outcomes)

    @property
    def slowdown(self) -> float:
        return fmean(outcome.slowdown for outcome in self.outcomes)


def limits(scene: Scene, policy: Policy, costs: Costs) -> Limits:
    """As a server's with a slot for each chat, and the host's room for all of them."""
    pages = scene.pool // PAGE_TOKENS
    return Limits(
        slots=scene.chats,
        pages=pages,
        n_ctx=scene.pool,
        batch_tokens=costs.batch_tokens,
        logit_rows=scene.chats,
        ahead=costs.ahead,
        host_pages=pages * scene.chats,
        resume=policy.resume,
        quantum=policy.quantum,
        knobs=Knobs(victim=policy.victim),
    )


def simulated(scene: Scene, policy: Policy, seed: int, watch: Watch | None = None) -> Outcome:
    """One run. `watch` gets its views."""
    costs = DEVICES[scene.device]
    chats = traffic(scene.lengths, scene.chats, scene.pool, seed, every=scene.every)
    return run(chats, costs, limits(scene, policy, costs), watch)


def study(scene: Scene, policies: Iterable[Policy], seeds: int = SEEDS) -> list[Cell]:
    """Every policy on the same seeds, in processes, one for each core that may be used."""
    policies = tuple(policies)
    jobs = list(itertools.product([scene], policies, range(seeds)))
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool:
        outcomes = list(pool.map(simulated, *zip(*jobs, strict=True), chunksize=4))
    return [Cell(policy, outcomes[at * seeds : (at + 1) * seeds]) for at, policy in enumerate(policies)]


def against_pass(cell: Cell, cells: Iterable[Cell]) -> Cell:
    """The cell of the same policy in the order `pass`."""
    same = Policy("pass", cell.policy.victim, cell.policy.quantum)
    return next(other for other in cells if other.policy == same)
