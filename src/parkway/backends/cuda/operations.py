"""The GPU's `backends.Operations`: every call launches kernels on the rows of the step that is set. Eager, or captured.

Knows shapes and where things lie; which configuration of a kernel runs is the chooser's to say.
"""

import math
from dataclasses import dataclass

import torch

from parkway.backends import HeadNorms, KvShape, Rope
from parkway.backends.cuda import attention, rows
from parkway.backends.cuda.attention import Choices, Scratch, Work
from parkway.backends.cuda.attention_work import SPLIT, Chunks, Sizes
from parkway.backends.cuda.device import Device, launches_early
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
    last_tokens [slots]. `chunks`: the same on the host, where the step is launched kernel by kernel.
    """

    tokens: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor
    tables: torch.Tensor
    logit_row: torch.Tensor
    last_tokens: torch.Tensor
    work: Work
    chunks: Chunks | None


@dataclass(frozen=True, slots=True)
class Pool:
    """Where KV lies, and what its rows are turned by: bf16 [pages, layers, 2, kv_heads, 64, head_dim], fp32 turns."""

    kv: KvShape
    heads: int
    pages: torch.Tensor
    rope: Rope
    turns: torch.Tensor


class CudaOps:
    """Values are bf16 [rows, width]. `begin` a step, then run a model's forward pass.

    `early_above`: with more rows than that, kernels are launched before those ahead of them have ended.
    """

    def __init__(self, pool: Pool, linears: Linears, choices: Choices, device: Device, early_above: int) -> None:
        self.step: StepTensors
        self._pool = pool
        self._linears = linears
        self._choices = choices
        self._device = device
        self._early_above = early_above
        self.early = False
        partial_bytes = 4 * pool.heads * pool.kv.head_dim
        splits = -(-len(pool.pages) * PAGE_TOKENS // SPLIT)
        self._partials = min(MOST_FEW_ROWS * splits, SCRATCH_BYTES // partial_bytes)
        self._scratch = Scratch.allocate(
            self._partials, pool.heads, pool.kv.kv_heads, pool.kv.head_dim, pool.pages.device
        )

    def begin(self, step: StepTensors) -> None:
        """What is launched from now on computes this step."""
        self.step = step
        self.early = launches_early(self._device, len(step.tokens), self._early_above)

    def work_sizes(self, rows: int, chunks: int, pages: int) -> Sizes:
        """How attention's lists are cut and how long they are, for steps of so many rows in so many chunks."""
        kv_heads = self._pool.kv.kv_heads
        group, configs = self._pool.heads // kv_heads, self._choices.of(rows)
        return Sizes.of(
            rows,
            chunks,
            pages * PAGE_TOKENS,
            few_tokens=configs.few.height // group,
            many_tokens=configs.many.height // group,
            most_partials=self._partials,
            abreast=attention.side_by_side(self._device.torch, kv_heads),
        )

    def embed(self, table: CudaMatrix) -> torch.Tensor:
        step = self.step
        ids = (step.tokens, step.slots, step.last_tokens)
        if isinstance(table, QuantMatrix):
            return embed_rows(table, *ids, pdl=self.early)
        return rows.embed(*ids, table.values, pdl=self.early)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        return rows.rms_norm(x, weight, epsilon, pdl=self.early)

    def linear(self, x: torch.Tensor, weights: Together) -> tuple[torch.Tensor, ...]:
        made: list[torch.Tensor] = []
        for matrix, widths in weights.parts:
            made += self._linears.rows(x, matrix).split(widths, dim=1)
        return tuple(made)

    def linear_add(self, x: torch.Tensor, weight: CudaMatrix, residual: torch.Tensor) -> torch.Tensor:
        return self._linears.rows(x, weight, residual)

    def gated(self, x: torch.Tensor, gate: CudaMatrix, up: CudaMatrix) -> torch.Tensor:
        return self._linears.gated(x, gate, up)

    def rope_and_write(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: int, norms: HeadNorms | None = None
    ) -> torch.Tensor:
        step, pool = self.step, self._pool
        places = (pool.turns, step.positions, step.slots, step.tables, pool.pages, layer, pool.rope)
        return rows.rope_and_write(q, k, v, *places, norms, pdl=self.early)

    def attention(self, q: torch.Tensor, layer: int) -> torch.Tensor:
        pool, step = self._pool, self.step
        by_head = q.view(len(q), pool.heads, pool.kv.head_dim)
        out = torch.empty(by_head.shape, dtype=torch.bfloat16, device=q.device)
        attention.attention(
            by_head,
            pool.pages,
            layer,
            step.tables,
            step.work,
            self._scratch,
            out,
            config=self._choices.of(len(q)),
            scale=1 / math.sqrt(pool.kv.head_dim),
            pdl=self.early,
        )
        return out.view(len(q), -1)

    def take(self, x: torch.Tensor) -> torch.Tensor:
        return rows.take(x, self.step.logit_row, pdl=self.early)

    def logits(self, x: torch.Tensor, head: CudaMatrix) -> torch.Tensor:
        return self._linears.rows(x, head, out_dtype=torch.float32)
