"""The GPU's `backends.Operations`: every call launches kernels on the rows of the step that is set. Eager, or captured.

Knows shapes and where things lie; which configuration of a kernel runs is the chooser's to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from parkway.backends import Activation, Attention, DeltaNet, Experts, KvShape, Rings, place_of
from parkway.backends.cuda import attention, delta, delta_rows, pointwise, rows
from parkway.backends.cuda.attention import Choices, Scratch, Work
from parkway.backends.cuda.attention_work import SPLIT, Chunks, Sizes
from parkway.backends.cuda.device import ONE_BY_ONE, Device, Launches
from parkway.backends.cuda.experts import ExactExperts
from parkway.backends.cuda.experts_rows import Sum
from parkway.backends.cuda.linears import Linears
from parkway.backends.cuda.quantised import QuantMatrix, embed_rows
from parkway.backends.cuda.weights import CudaMatrix, Together
from parkway.plan.step import PAGE_TOKENS

SCRATCH_BYTES = 1 << 29
"""Most that the splits of few rows may leave for those who merge them; what does not fit is computed as many rows."""
MOST_FEW_ROWS = 64


@dataclass(frozen=True, slots=True)
class StepTensors:
    """A step's rows on the device, int32. A token of -1 is the one that its slot sampled last.

    tokens, slots, positions [rows] (position -1: nobody's row); tables [slots, pages]; logit_row [logit rows];
    last_tokens [slots]. `works`: attention's, by the window that a layer sees (0: all). `chunks`: the same rows on the
    host, where the step is launched kernel by kernel.
    """

    tokens: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    tables: torch.Tensor
    logit_row: torch.Tensor
    last_tokens: torch.Tensor
    works: Mapping[int, Work]
    chunks: Chunks | None
    runs: delta.Runs | None = None
    """Where layers keep states."""


@dataclass(frozen=True, slots=True)
class RingPages:
    """Pages of slots, as `Pool` has them, for layers that see a window; `tables` int32 [slots, pages] never change."""

    shape: Rings
    pages: torch.Tensor
    tables: torch.Tensor


@dataclass(frozen=True, slots=True)
class Pool:
    """Where KV lies: bf16 [pages, layers, 2, kv_heads, 64, head_dim], but for layers with `rings`. `kv`: of both.

    `turns`: what rows are turned by, float32, by the id of each Rope. `states`: of slots, where layers keep them;
    `delta_config`: how those are computed.
    """

    kv: KvShape
    heads: int
    pages: torch.Tensor
    turns: Mapping[int, torch.Tensor]
    states: delta.States | None = None
    delta_config: delta.Config | None = None
    rings: RingPages | None = None


Rows = torch.Tensor | Sum


class CudaOps:
    """Values are bf16 [rows, width], perhaps not added up yet. `begin` a step, then run a model's forward pass.

    `early`: when this step's kernels are launched, by `launches`. `hidden`: what the logits of the newest forward pass
    are made of.
    """

    def __init__(
        self,
        pool: Pool,
        linears: Linears,
        experts: ExactExperts,
        choices: Choices,
        device: Device,
        launches: Launches,
    ) -> None:
        self.step: StepTensors
        self.hidden: torch.Tensor
        self._pool = pool
        self._linears = linears
        self._experts = experts
        self._choices = choices
        self._device = device
        self._launches = launches
        self.early = ONE_BY_ONE
        partial_bytes = 4 * pool.heads * pool.kv.head_dim
        splits = -(-len(pool.pages) * PAGE_TOKENS // SPLIT)
        self._partials = min(MOST_FEW_ROWS * splits, SCRATCH_BYTES // partial_bytes)
        self._scratch = Scratch.allocate(
            self._partials, pool.heads, pool.kv.kv_heads, pool.kv.head_dim, pool.pages.device
        )

    def begin(self, step: StepTensors) -> None:
        """What is launched from now on computes this step."""
        self.step = step
        self.early = self._launches.of(self._device, len(step.tokens))

    def work_sizes(self, rows: int, chunks: int, pages: int, window: int) -> Sizes:
        """How attention's lists are cut and how long they are, for steps of so many rows in so many chunks, of layers
        that see the last `window` positions, or all where that is 0."""
        kv_heads = self._pool.kv.kv_heads
        group, configs = self._pool.heads // kv_heads, self._choices.of(rows)
        return Sizes.of(
            rows,
            chunks,
            pages * PAGE_TOKENS,
            few_tokens=configs.few.height // group,
            many_tokens=configs.many.height // group,
            most_partials=self._partials,
            window=window,
            abreast=attention.side_by_side(self._device.torch, kv_heads),
        )

    def embed(self, table: CudaMatrix, scale: float = 1.0) -> torch.Tensor:
        step = self.step
        ids = (step.tokens, step.slots, step.last_tokens)
        if isinstance(table, QuantMatrix):
            x = embed_rows(table, *ids, pdl=self.early)
        else:
            x = rows.embed(*ids, table.values, pdl=self.early)
        return x if scale == 1 else pointwise.scaled(x, scale, pdl=self.early)

    def rms_norm(self, x: Rows, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        if isinstance(x, Sum):
            return x.normed(weight, epsilon, pdl=self.early)
        return rows.rms_norm(x, weight, epsilon, pdl=self.early)

    def norm_add(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float, residual: Rows) -> torch.Tensor:
        return rows.rms_norm(x, weight, epsilon, self._added(residual), pdl=self.early)

    def linear(self, x: torch.Tensor, weights: Together) -> tuple[torch.Tensor, ...]:
        made: list[torch.Tensor] = []
        for matrix, widths in weights.parts:
            made += self._linears.rows(x, matrix).split(widths, dim=1)
        return tuple(made[place] for place in weights.places)

    def linear_add(self, x: torch.Tensor, weight: CudaMatrix, residual: Rows) -> torch.Tensor:
        return self._linears.rows(x, weight, self._added(residual))

    def gated(self, x: torch.Tensor, gate: CudaMatrix, up: CudaMatrix, activation: Activation = "silu") -> torch.Tensor:
        return self._linears.gated(x, gate, up, activation)

    def rope_and_write(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, how: Attention) -> torch.Tensor:
        step = self.step
        turns = self._pool.turns[id(how.rope)] if how.rope else None
        pages, layer, tables = self._place(how)
        places = (turns, step.positions, step.slots, tables, pages, layer, how.rope)
        return rows.rope_and_write(q, k, v, *places, how.norms, pdl=self.early)

    def attention(self, q: torch.Tensor, how: Attention) -> torch.Tensor:
        pool, step = self._pool, self.step
        by_head = q.view(len(q), pool.heads, pool.kv.head_dim)
        out = torch.empty(by_head.shape, dtype=torch.bfloat16, device=q.device)
        attention.attention(
            by_head,
            *self._place(how),
            step.works[how.window],
            self._scratch,
            out,
            config=self._choices.of(len(q)),
            scale=how.scale,
            window=how.window,
            soft_cap=how.soft_cap,
            sinks=how.sinks,
            pdl=self.early,
        )
        return out.view(len(q), -1)

    def _place(self, how: Attention) -> tuple[torch.Tensor, int, torch.Tensor]:
        """Pages that hold a layer, its number there, and page tables."""
        rings = self._pool.rings
        in_ring, layer = place_of(how.layer, rings.shape if rings else None)
        return (rings.pages, layer, rings.tables) if rings and in_ring else (self._pool.pages, layer, self.step.tables)

    def sigmoid_gate(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return pointwise.sigmoid_gate(x, gate, pdl=self.early)

    def add(self, x: torch.Tensor, residual: Rows) -> torch.Tensor:
        return pointwise.add(x, self._added(residual), pdl=self.early)

    def routed(
        self, x: Rows, weight: torch.Tensor, epsilon: float, router: CudaMatrix
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._experts.routed(self._added(x), weight, epsilon, router, pdl=self.early)

    def experts_add(self, x: torch.Tensor, scores: torch.Tensor, experts: Experts, residual: Rows) -> Rows:
        return self._experts.add(x, scores, experts, self._added(residual), pdl=self.early)

    def delta_net(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, a: torch.Tensor, b: torch.Tensor, how: DeltaNet
    ) -> torch.Tensor:
        states, config, runs = self._pool.states, self._pool.delta_config, self.step.runs
        assert states, "a pool without states"
        assert config, "nothing that computes states"
        assert runs, "a step without runs"
        return delta.delta_net(q, k, v, a, b, how, states, runs, config, pdl=self.early)

    def gated_norm(self, x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        return delta_rows.gated_norm(x, gate, weight, epsilon, pdl=self.early)

    def take(self, x: Rows) -> torch.Tensor:
        return rows.take(self._added(x), self.step.logit_row, pdl=self.early)

    def logits(self, x: torch.Tensor, head: CudaMatrix, soft_cap: float = 0.0) -> torch.Tensor:
        self.hidden = x
        made = self._linears.rows(x, head, out_dtype=torch.float32)
        return pointwise.capped(made, soft_cap, pdl=self.early) if soft_cap else made

    def _added(self, x: Rows) -> torch.Tensor:
        return x.rows(pdl=self.early) if isinstance(x, Sum) else x
