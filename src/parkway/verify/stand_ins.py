"""Stand-ins for a runner and its copies: pages that lie elsewhere, copies that take no time. Know no configuration."""

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import structs

from parkway.memory.copies import Copies, CopiesAround
from parkway.plan.copies import Copy
from parkway.plan.step import Chunk, StepPlan
from parkway.runner import Runner, Sampled
from parkway.runner.edits import NO_EDITS, Edits

LATEST = 8
"""Times that one asks in vain, about once a step, until copies are waited for."""


class Elsewhere:
    """A `Runner` whose page p lies at `pages[p]` of another's: where a page lies is part of the traffic too."""

    def __init__(self, runner: Runner, pages: Sequence[int]) -> None:
        self.pages = len(pages)
        self.pool_bytes = runner.pool_bytes
        self.buffer_bytes = runner.buffer_bytes
        self.n_ctx = runner.n_ctx
        self.page_bytes = runner.page_bytes
        self.batch_tokens = runner.batch_tokens
        self.logit_rows = runner.logit_rows
        self.exact = runner.exact
        self.bit_check = runner.bit_check
        self.embedding_width = runner.embedding_width
        self.checkpoints = runner.checkpoints
        self.rings = runner.rings
        self.state_bytes = runner.state_bytes
        self.ring_bytes = runner.ring_bytes
        self.checkpoint_bytes = runner.checkpoint_bytes
        self.ahead = runner.ahead
        self.again = runner.again
        self._runner = runner
        self._places = pages
        self._planned: deque[tuple[Chunk, ...]] = deque()
        self._tables: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def launch(self, plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
        self._planned.append(plan.chunks)
        self._runner.launch(structs.replace(plan, chunks=tuple(map(self._moved, plan.chunks))), edits)

    def land(self) -> list[tuple[Chunk, Sampled]]:
        found = (sampled for _, sampled in self._runner.land())
        return list(zip(self._planned.popleft(), found, strict=True))

    def copies(self, most_bytes: int, *, beside: bool) -> "CopiesElsewhere":
        return CopiesElsewhere(self._runner.copies(most_bytes, beside=beside), self._places)

    def _moved(self, chunk: Chunk) -> Chunk:
        """The same chunk elsewhere. A table that has not changed stays the same object, by which a runner knows it."""
        given, moved = self._tables.get(chunk.slot, ((), ()))
        if given is not chunk.pages:
            moved = tuple(self._places[page] for page in chunk.pages)
            self._tables[chunk.slot] = chunk.pages, moved
        return structs.replace(chunk, pages=moved)


class CopiesElsewhere(CopiesAround):
    """`Copies` to and from the pages of a runner that is `Elsewhere`; the host's pages are where they are."""

    def __init__(self, copies: Copies, places: Sequence[int]) -> None:
        super().__init__(copies)
        self._places = places

    def submit(self, copy: Copy) -> None:
        sources = copy.sources if copy.from_host else self._moved(copy.sources)
        targets = copy.targets if copy.to_host else self._moved(copy.targets)
        self._copies.submit(structs.replace(copy, sources=sources, targets=targets))

    def _moved(self, pages: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self._places[page] for page in pages)


class Timeless(CopiesAround):
    """`Copies` with a `clock` of their own, by which they take no time and everything else takes some.

    So a planner always finds a copy faster than to compute again, and chats take turns, on every machine alike: where
    copies come late, because something else has the cores, nobody computes a whole prompt meanwhile.
    """

    def __init__(self, copies: Copies) -> None:
        super().__init__(copies)
        self._open = self._asked = 0
        self._now = 0.0

    def clock(self) -> float:
        """Ticks whenever it is read and nothing is being copied."""
        self._now += self._open == 0
        return self._now

    def submit(self, copy: Copy) -> None:
        self._copies.submit(copy)
        self._open += 1

    def landed(self) -> list[Copy]:
        self._asked += 1
        return self._counted(self._copies.landed() if self._asked < LATEST else self._copies.drain())

    def drain(self) -> list[Copy]:
        return self._counted(self._copies.drain())

    def _counted(self, copies: list[Copy]) -> list[Copy]:
        self._open -= len(copies)
        if copies:
            self._asked = 0
        return copies
