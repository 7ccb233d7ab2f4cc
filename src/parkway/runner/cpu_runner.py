"""Runs steps on the CPU: a plan becomes one batch, one call into C++, and what it sampled."""

import ctypes as C
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from parkway.backends.cpu.library import Batch, RowEdits, Sample
from parkway.backends.cpu.program import Program
from parkway.memory import cpu_copies
from parkway.memory.host_copies import HostCopies
from parkway.memory.page_store import PageStore
from parkway.memory.ring_store import RingStore
from parkway.memory.state_store import StateStore
from parkway.plan.step import Chunk, StepPlan
from parkway.request import Request, TokenLogprob
from parkway.runner import GREEDY_BELOW, Sampled
from parkway.runner.edits import NO_EDITS, Edits


class CpuRunner:
    """A `Runner`: launch computes at once, so that nothing is in flight when the next step is planned."""

    ahead = 0
    exact = True
    bit_check = None

    def __init__(
        self,
        program: Program,
        store: PageStore,
        hidden: npt.NDArray[np.float32],
        *,
        slots: int,
        max_rows: int,
        logit_rows: int,
        n_ctx: int,
        states: StateStore | None = None,
        rings: RingStore | None = None,
    ) -> None:
        """`hidden`: what the program leaves of each logit row, before the output matrix."""
        self.program = program
        self.n_ctx = n_ctx
        self.buffer_bytes = program.buffer_bytes
        kept = [each for each in (states, rings) if each]
        self.state_bytes = sum(each.bytes for each in kept)
        self.checkpoint_bytes = sum(each.checkpoint_bytes for each in kept)
        self.checkpoints = kept[0].checkpoints if kept else None
        self.rings = rings.rings if rings else None
        self.ring_bytes = rings.ring_bytes if rings else 0
        self.embedding_width = hidden.shape[1]
        self._hidden = hidden
        self.pages = store.pages
        self.pool_bytes = store.bytes
        self.page_bytes = store.page_bytes
        self.batch_tokens = max_rows
        self.logit_rows = logit_rows
        self._store = store
        self._states = states
        self._rings = rings
        # ctypes arrays: storing one number is what a decode step does most, and NumPy is slower at it.
        self._tokens = (C.c_int32 * max_rows)()
        self._positions = (C.c_int32 * max_rows)()
        self._table_of = (C.c_int32 * max_rows)()
        self._slots = (C.c_int32 * max_rows)()
        self._logit_row = (C.c_int32 * logit_rows)()
        self._tables = np.zeros((slots, store.pages), np.int32)
        self._table_in_use: list[tuple[int, ...] | None] = [None] * slots
        self._orders: list[tuple[Request, Sample] | None] = [None] * slots
        self._samples = (Sample * logit_rows)()
        self._batch = Batch(
            tokens=C.addressof(self._tokens),
            positions=C.addressof(self._positions),
            table_of=C.addressof(self._table_of),
            pages=self._tables.ctypes.data,
            logit_row=C.addressof(self._logit_row),
            samples=C.addressof(self._samples),
            slots=C.addressof(self._slots),
        )
        self._sampled_at: dict[int, int] = {}
        """By slot: which logit row of the last step its token was chosen from."""
        self._results: list[tuple[Chunk, Sampled]] = []

    def launch(self, plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
        rows = logit_rows = 0
        for chunk in plan.chunks:
            logit_rows = self._ask(chunk, rows, logit_rows, edits.get(chunk.slot))
            rows = self._place(chunk, rows)
            if chunk.state_from is not None:
                self._begin(chunk, chunk.state_from)
        self._batch.rows, self._batch.logit_rows = rows, logit_rows
        self.program.run(self._batch)
        for chunk in plan.chunks:
            if chunk.state_to is not None:
                self._keep(chunk, chunk.state_to)
        self._collect(plan)

    def land(self) -> list[tuple[Chunk, Sampled]]:
        landed, self._results = self._results, []
        return landed

    def again(self, chunk: Chunk, edits: Edits) -> Sampled:
        at = self._sampled_at[chunk.slot]
        sample = self._samples[at]
        sample.draw, sample.edits = 1, row_edits(edits)
        self.program.again(self._batch, at)
        return Sampled(sample.token, _logprob(sample) if sample.top >= 0 else None, [])

    def copies(self, most_bytes: int, *, beside: bool) -> HostCopies:
        """Copies that need not be told of steps: one that has been launched is over."""
        host = cpu_copies.host_pool(self._store, most_bytes)
        return HostCopies(cpu_copies.copy_engine(self._store, host), host, beside=beside)

    def _begin(self, chunk: Chunk, checkpoint: int) -> None:
        if self._states:
            self._states.begin(chunk.slot, checkpoint)
        if self._rings:
            self._rings.begin(chunk.slot, checkpoint, chunk.start)

    def _keep(self, chunk: Chunk, checkpoint: int) -> None:
        if self._states:
            self._states.keep(chunk.slot, checkpoint)
        if self._rings:
            self._rings.keep(chunk.slot, checkpoint, chunk.end)

    def _place(self, chunk: Chunk, row: int) -> int:
        rows, table = len(chunk.tokens), chunk.slot * self.pages
        end = row + rows
        if rows == 1:
            self._tokens[row], self._positions[row], self._table_of[row] = chunk.tokens[0], chunk.start, table
            self._slots[row] = chunk.slot
        else:
            assert self.rings is None or rows <= self.rings.chunk, "a chunk that overwrites what its own rows see"
            self._tokens[row:end] = list(chunk.tokens)
            self._positions[row:end] = list(range(chunk.start, chunk.end))
            self._table_of[row:end] = [table] * rows
            self._slots[row:end] = [chunk.slot] * rows
        if self._table_in_use[chunk.slot] is not chunk.pages:
            self._tables[chunk.slot, : len(chunk.pages)] = chunk.pages
            self._table_in_use[chunk.slot] = chunk.pages
        return end

    def _ask(self, chunk: Chunk, row: int, logit_row: int, edits: Edits | None) -> int:
        """Writes what each logit row of a chunk is wanted for; returns the next free logit row."""
        for scored in chunk.scored_rows:
            self._logit_row[logit_row] = row + scored
            self._samples[logit_row] = _NOTHING if chunk.request.sampling.embed else _scored(chunk, scored)
            logit_row += 1
        if chunk.samples:
            self._logit_row[logit_row] = row + len(chunk.tokens) - 1
            self._samples[logit_row] = self._sampled(chunk)
            self._sampled_at[chunk.slot] = logit_row
            if edits is not None:
                self._samples[logit_row].edits = row_edits(edits)
            logit_row += 1
        return logit_row

    def _sampled(self, chunk: Chunk) -> Sample:
        """The sampler's orders for the token after a chunk; of one request only its index changes."""
        kept = self._orders[chunk.slot]
        if kept is None or kept[0] is not chunk.request:
            kept = self._orders[chunk.slot] = (chunk.request, _orders(chunk.request))
        kept[1].position = chunk.next_index
        return kept[1]

    def _collect(self, plan: StepPlan) -> None:
        at = 0
        for chunk in plan.chunks:
            owed, scored, hidden = range(at, at + len(chunk.scored_rows)), [], None
            if owed and chunk.request.sampling.embed:
                hidden = self._hidden[owed.start : owed.stop].copy()
            else:
                scored = [_logprob(self._samples[i]) for i in owed]
            at = owed.stop
            token, logprob, surprise = None, None, None
            if chunk.samples:
                sample = self._samples[at]
                token, logprob = sample.token, _logprob(sample) if sample.top >= 0 else None
                surprise = sample.surprise if sample.edits.chain else None
                at += 1
            self._results.append((chunk, Sampled(token, logprob, scored, hidden, surprise)))


_NOTHING = Sample(target=-1, top=-1)
"""Orders for a row whose logits nobody wants."""


def _orders(request: Request) -> Sample:
    """How a request's tokens are sampled, whatever their position."""
    how = request.sampling
    return Sample(
        temperature=how.temperature if how.temperature >= GREEDY_BELOW else 0.0,
        top_p=how.top_p,
        min_p=how.min_p,
        top_k=how.top_k,
        target=-1,
        top=-1 if how.logprobs is None else how.logprobs,
        seed=request.seed & (2**64 - 1),
        prompt_index=request.prompt_index,
        choice_index=request.choice_index,
    )


def row_edits(edits: Edits) -> RowEdits:
    """Valid as long as the arrays live."""
    mask = None if edits.mask is None else edits.mask.ctypes.data
    numbers = (each.ctypes.data for each in (edits.ids, edits.shrink, edits.grow, edits.offset))
    chain, steps = (None, 0) if edits.chain is None else (edits.chain.ctypes.data, len(edits.chain))
    return RowEdits(*numbers, len(edits.ids), mask, chain, steps)


def _scored(chunk: Chunk, row: int) -> Sample:
    """Orders to look up a prompt token's log-probability instead of drawing one."""
    position = chunk.start + row + 1
    wanted = chunk.request.sampling.prompt_logprobs
    return Sample(target=chunk.request.prompt[position], top=wanted or 0, position=position)


def _logprob(sample: Sample) -> TokenLogprob:
    top = [(sample.top_ids[i], sample.top_logprobs[i]) for i in range(sample.top)]
    return TokenLogprob(sample.position, sample.token, sample.logprob, top)
