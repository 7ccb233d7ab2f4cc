"""Runs steps on the GPU: fills one step's words, launches it, and reads back what it sampled a step later.

The host never waits for the device but in `land`, and there only for the step before the one in flight. Nothing of a
step goes through a copy engine, where it would wait for the pages of parked chats: kernels read and write the host's
memory themselves.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from parkway.backends.cuda import mapped
from parkway.backends.cuda.attention_work import Chunks
from parkway.backends.cuda.device import Device, Event
from parkway.backends.cuda.sample import ORDER, RESULT
from parkway.backends.cuda.sample_row import RESULT_WORDS
from parkway.memory import cuda_copies
from parkway.memory.copy_engine import CopyEngine
from parkway.memory.cuda_checkpoints import CudaCheckpoints
from parkway.memory.cuda_page_store import CudaPageStore
from parkway.memory.host_copies import HostCopies
from parkway.plan.step import Chunk, StepPlan
from parkway.request import Request, TokenLogprob
from parkway.runner import GREEDY_BELOW, Sampled
from parkway.runner.cuda_edits import PinnedEdits
from parkway.runner.cuda_step import DeviceStep, Steps
from parkway.runner.edits import NO_EDITS, Edits

AHEAD = 1
"""Steps that may be in flight while the host plans the next."""


class _Flying(NamedTuple):
    plan: StepPlan
    results: npt.NDArray[np.void]
    hidden: npt.NDArray[np.uint16]
    """bf16 [logit rows, width]; says something only if the step has a request for an embedding."""
    read: Event


class CudaRunner:
    """A `Runner` on one stream; what a step sampled is written to the host's memory on another."""

    ahead = AHEAD
    again = None

    def __init__(
        self,
        steps: Steps,
        store: CudaPageStore,
        checkpoints: CudaCheckpoints | None,
        device: Device,
        *,
        exact: bool,
        bit_check: str,
        n_ctx: int,
    ) -> None:
        """`checkpoints`: of states and rings, where slots have any."""
        states, rings = steps.pool.states, steps.pool.rings
        assert (checkpoints is None) == (not states and not rings), "slots without checkpoints, or the reverse"
        self.exact = exact
        self.bit_check = bit_check
        self.n_ctx = n_ctx
        self.buffer_bytes = 0
        """Told by whoever saw it allocate."""
        self.pages = store.pages
        self.pool_bytes = store.bytes
        self.page_bytes = store.page_bytes
        self.batch_tokens = steps.sizes.rows
        self.logit_rows = steps.sizes.logit_rows
        self.embedding_width = steps.family.config.width
        self.checkpoints = None if checkpoints is None else len(checkpoints)
        self.checkpoint_bytes = 0 if checkpoints is None else checkpoints.bytes
        self.rings = rings.shape if rings else None
        self.ring_bytes = rings.pages.nbytes if rings else 0
        self.state_bytes = (states.bytes if states else 0) + self.ring_bytes + self.checkpoint_bytes
        self._checkpoints = checkpoints
        self._steps = steps
        self._store = store
        self._flying: deque[_Flying] = deque()
        self._requests: list[Request | None] = [None] * steps.sizes.slots
        self._orders = np.zeros(steps.sizes.slots, ORDER)
        self._tables_in_use: list[tuple[int, ...]] = [()] * steps.sizes.slots
        # A buffer is filled again when the step that last used it has landed, so that all kernels which read or write
        # it have ended: one more than can be in flight.
        self._buffers = deque(_Buffers.made(steps, device) for _ in range(AHEAD + 2))
        self._device = device
        self._reader = device.stream()
        self._last_read: Event | None = None
        self._copy_engine: CopyEngine | None = None

    def launch(self, plan: StepPlan, edits: Mapping[int, Edits] = NO_EDITS) -> None:
        """Queues a step on the device and returns."""
        self._queue(plan, edits, sum(len(chunk.tokens) for chunk in plan.chunks))

    def warm(self) -> None:
        """Captures the graphs of steps in which every slot has a row at most: no chat will wait for one of these."""
        for rows in self._steps.decode_buckets:
            self._queue(StepPlan(), NO_EDITS, rows)
            self.land()

    def _queue(self, plan: StepPlan, edits: Mapping[int, Edits], rows: int) -> None:
        """Queues a step of so many rows, those that the plan does not have being nobody's."""
        buffers = self._buffers[0]
        self._buffers.rotate(-1)
        asked = sum(len(chunk.scored_rows) + chunk.samples for chunk in plan.chunks)
        step = self._steps.of(rows)
        device, main = self._device, self._steps.stream
        with device.on(main):
            self._fill(plan, edits, step, buffers)
            changes = self._change_tables(plan, buffers)
            places = (self._steps.tables, buffers.places, buffers.pages)
            mapped.send(self._steps.words, buffers.words, step.used_words, *places, changes)
            if self._last_read is not None:  # until then the results of the step before are still needed
                self._last_read.hold(main)
            self._begin_at_checkpoints(plan)
            hidden = step.run(edited=bool(edits))
            self._keep_checkpoints(plan)
            end = device.record(main)
            end.hold(self._reader)
        if self._copy_engine is not None:
            self._copy_engine.after(end)
        with device.on(self._reader):
            if asked:
                mapped.fetch(buffers.results, self._steps.results, asked * RESULT_WORDS)
            if asked and any(chunk.request.sampling.embed for chunk in plan.chunks):
                mapped.fetch(buffers.hidden, hidden.view(torch.int32), asked * buffers.hidden.shape[1])
            read = self._last_read = device.record(self._reader)
        results = buffers.results.numpy().view(RESULT)[:asked, 0]
        self._flying.append(_Flying(plan, results, buffers.hidden.numpy().view(np.uint16), read))

    def land(self) -> list[tuple[Chunk, Sampled]]:
        """What the oldest step in flight has sampled; waits for it."""
        flying = self._flying.popleft()
        flying.read.wait()
        results, at = flying.results, 0
        tokens = results["token"].tolist()
        landed = []
        for chunk in flying.plan.chunks:
            rows, scored, hidden = chunk.scored_rows, [], None
            if rows and chunk.request.sampling.embed:
                hidden = _floats(flying.hidden[at : at + len(rows)])
            else:
                scored = [_logprob(chunk, row, results[at + i]) for i, row in enumerate(rows)]
            at += len(rows)
            token, logprob, surprise = None, None, None
            if chunk.samples:
                token = tokens[at]
                surprise = float(results["surprise"][at]) if chunk.request.sampling.mirostat else None
                if chunk.request.sampling.logprobs is not None:
                    logprob = _logprob(chunk, len(chunk.tokens) - 1, results[at])
                at += 1
            landed.append((chunk, Sampled(token, logprob, scored, hidden, surprise)))
        return landed

    def copies(self, most_bytes: int, *, beside: bool) -> HostCopies:
        """Copies that wait on the device for what has been launched; until this is called again, for one engine."""
        host = cuda_copies.host_pool(self._store, most_bytes)
        self._copy_engine = cuda_copies.copy_engine(self._store, host, self._device)
        self._copy_engine.after(self._device.record(self._steps.stream))
        return HostCopies(self._copy_engine, host, beside=beside, spare_bytes=cuda_copies.SPARE_BYTES)

    def _begin_at_checkpoints(self, plan: StepPlan) -> None:
        if checkpoints := self._checkpoints:
            for chunk in plan.chunks:
                if chunk.state_from is not None:
                    checkpoints.begin(chunk.slot, chunk.state_from, chunk.start)

    def _keep_checkpoints(self, plan: StepPlan) -> None:
        if checkpoints := self._checkpoints:
            for chunk in plan.chunks:
                if chunk.state_to is not None:
                    checkpoints.keep(chunk.slot, chunk.state_to, chunk.end)

    def _change_tables(self, plan: StepPlan, buffers: "_Buffers") -> int:
        """Writes what differs from the page tables that the device has, where one differs; returns how many pages."""
        places, pages = buffers.places.numpy(), buffers.pages.numpy()
        width, at = self._steps.sizes.pages, 0
        for chunk in plan.chunks:
            had = self._tables_in_use[chunk.slot]
            if had is chunk.pages:
                continue
            self._tables_in_use[chunk.slot] = chunk.pages
            first = len(had) if chunk.pages[: len(had)] == had else 0
            end = at + len(chunk.pages) - first
            places[at:end] = np.arange(first, len(chunk.pages)) + chunk.slot * width
            pages[at:end] = chunk.pages[first:]
            at = end
        return at

    def _fill(self, plan: StepPlan, edits: Mapping[int, Edits], step: DeviceStep, buffers: "_Buffers") -> None:
        """Writes a plan's rows: tokens, places, what each logit row is for, its edits, and attention's work."""
        chunks = plan.chunks
        counts = np.array([len(chunk.tokens) for chunk in chunks], np.int32)
        assert not self.rings or max(counts, default=0) <= self.rings.chunk, "a chunk that overwrites what its rows see"
        slots = np.array([chunk.slot for chunk in chunks], np.int32)
        starts = np.array([chunk.start for chunk in chunks], np.int32)
        firsts = np.cumsum(counts, dtype=np.int32) - counts
        rows = int(counts.sum())
        part = step.parts(buffers.words.numpy())
        part["tokens"][:rows] = [token for chunk in chunks for token in chunk.tokens]
        part["tokens"][rows:] = 0
        part["slots"][:rows] = np.repeat(slots, counts)
        part["slots"][rows:] = 0
        part["positions"][:rows] = np.arange(rows, dtype=np.int32) + np.repeat(starts - firsts, counts)
        part["positions"][rows:] = -1
        chosen = self._ask(chunks, firsts, part["logit_row"], part["orders"].view(ORDER)[:, 0])
        if edits:
            edited = [(chosen[slot], each) for slot, each in edits.items()]
            buffers.edits.write(edited, part["edits"], part["edits_place"])
        step.fill_work(part, Chunks(firsts, counts, slots, starts))

    def _ask(
        self,
        chunks: tuple[Chunk, ...],
        firsts: npt.NDArray[np.int32],
        logit_row: npt.NDArray[np.int32],
        orders: npt.NDArray[np.void],
    ) -> dict[int, int]:
        """Writes which rows need logits and what for, in the order in which `land` reads the results.

        Returns, by slot, the logit row that its next token is chosen from.
        """
        at, chosen = 0, {}
        for chunk, first in zip(chunks, firsts.tolist(), strict=True):
            for row in chunk.scored_rows:
                wanted = _UNUSED if chunk.request.sampling.embed else _scored(chunk, row)
                logit_row[at], orders[at] = first + row, wanted
                at += 1
            if chunk.samples:
                if self._requests[chunk.slot] is not chunk.request:
                    self._requests[chunk.slot] = chunk.request
                    self._orders[chunk.slot] = _order(chunk.request, chunk.slot)
                logit_row[at], orders[at] = first + len(chunk.tokens) - 1, self._orders[chunk.slot]
                orders[at]["position"] = chunk.next_index
                chosen[chunk.slot] = at
                at += 1
        logit_row[at:], orders[at:] = 0, _UNUSED
        return chosen


@dataclass(frozen=True, slots=True)
class _Buffers:
    """Pinned memory of one step in flight: its words, its edits, what changes in page tables (flat places, pages), its
    results, the hidden states of its rows."""

    words: torch.Tensor
    edits: PinnedEdits
    places: torch.Tensor
    pages: torch.Tensor
    results: torch.Tensor
    hidden: torch.Tensor

    @classmethod
    def made(cls, steps: Steps, device: Device) -> "_Buffers":
        places, pages = (device.pinned((steps.tables.numel(),)) for _ in range(2))
        results = device.pinned((steps.sizes.logit_rows, RESULT_WORDS))
        hidden = device.pinned((steps.sizes.logit_rows, steps.family.config.width // 2))
        return cls(device.pinned((steps.most_words,)), PinnedEdits(device), places, pages, results, hidden)


_UNUSED = np.zeros((), ORDER)
_UNUSED["target"], _UNUSED["top"], _UNUSED["slot"] = 0, -1, -1


def _order(request: Request, slot: int) -> npt.NDArray[np.void]:
    """How a request's tokens are sampled, whatever their position."""
    how, order = request.sampling, np.zeros((), ORDER)
    order["temperature"] = how.temperature if how.temperature >= GREEDY_BELOW else 0.0
    order["top_p"], order["min_p"], order["top_k"] = how.top_p, how.min_p, how.top_k
    order["target"], order["top"] = -1, -1 if how.logprobs is None else how.logprobs
    seed = request.seed & (2**64 - 1)
    order["seed_low"], order["seed_high"] = seed & (2**32 - 1), seed >> 32
    order["prompt_index"], order["choice_index"], order["slot"] = request.prompt_index, request.choice_index, slot
    return order


def _scored(chunk: Chunk, row: int) -> npt.NDArray[np.void]:
    """Orders to look up a prompt token's log-probability instead of drawing one."""
    order = _UNUSED.copy()
    position = chunk.start + row + 1
    order["target"], order["top"] = chunk.request.prompt[position], chunk.request.sampling.prompt_logprobs or 0
    order["position"] = position
    return order


def _floats(bf16: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bf16.astype(np.uint32) << 16).view(np.float32)


def _logprob(chunk: Chunk, row: int, result: npt.NDArray[np.void]) -> TokenLogprob:
    wanted = chunk.request.sampling
    count = (wanted.logprobs if chunk.samples and row == len(chunk.tokens) - 1 else wanted.prompt_logprobs) or 0
    top = list(zip(result["top_ids"][:count].tolist(), result["top_logprobs"][:count].tolist(), strict=True))
    return TokenLogprob(chunk.shed + chunk.start + row + 1, int(result["token"]), float(result["logprob"]), top)
