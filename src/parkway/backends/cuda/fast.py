"""What our kernels are compared with: cuBLAS for matrices, SDPA for prompts. Its answers depend on the traffic.

torch has no attention over pages, so decoding steps use ours here too.
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from parkway.backends import Activation, Attention
from parkway.backends.cuda.attention import Work
from parkway.backends.cuda.attention_work import FEW_TOKENS
from parkway.backends.cuda.linears import ExactLinears
from parkway.backends.cuda.operations import CudaOps
from parkway.backends.cuda.quantised import QuantMatrix
from parkway.backends.cuda.weights import CudaMatrix
from parkway.plan.step import PAGE_TOKENS

_TILE = 1024


class FastLinears(ExactLinears):
    """cuBLAS where there is a dense matrix; quantised ones are multiplied as ever. Adds to residuals in place."""

    def rows(
        self,
        x: torch.Tensor,
        matrix: CudaMatrix,
        residual: torch.Tensor | None = None,
        out_dtype: torch.dtype = torch.bfloat16,
    ) -> torch.Tensor:
        if isinstance(matrix, QuantMatrix):
            return super().rows(x, matrix, residual, out_dtype)
        if out_dtype is torch.float32:
            return _plus(torch.mm(x, matrix.values.T, out_dtype=torch.float32), matrix.bias, residual)
        if residual is not None:
            return _plus(residual.addmm_(x, matrix.values.T), matrix.bias)
        if matrix.bias is not None:
            return torch.addmm(matrix.bias.to(x.dtype), x, matrix.values.T)
        return torch.mm(x, matrix.values.T)

    def gated(self, x: torch.Tensor, gate: CudaMatrix, up: CudaMatrix, activation: Activation) -> torch.Tensor:
        if isinstance(gate, QuantMatrix) or isinstance(up, QuantMatrix) or activation != "silu":
            return super().gated(x, gate, up, activation)
        opened, values = torch.mm(x, gate.values.T), torch.mm(x, up.values.T)
        _silu_times[(triton.cdiv(opened.numel(), _TILE),)](opened, values, opened.numel(), _TILE)
        return opened


def _plus(total: torch.Tensor, *more: torch.Tensor | None) -> torch.Tensor:
    """`total`, to which what is there has been added in place."""
    for each in more:
        if each is not None:
            total += each
    return total


class FastOps(CudaOps):
    """Prompts through SDPA, on keys and values gathered from their pages; chats that decode beside them as ever."""

    def attention(self, q: torch.Tensor, how: Attention) -> torch.Tensor:
        if self.step.chunks is None or how.window or how.soft_cap or how.sinks is not None:
            return super().attention(q, how)
        heads, kv = self._pool.heads, self._pool.kv
        by_head = q.view(len(q), heads, kv.head_dim)
        out = self._short_chunks(by_head, how)
        for first, count, slot, start in zip(*(column.tolist() for column in self.step.chunks), strict=True):
            if count <= FEW_TOKENS:
                continue
            rows = slice(first, first + count)
            keys, values = self._gathered(slot, start + count, how)
            attended = scaled_dot_product_attention(
                by_head[rows].transpose(0, 1)[None],
                keys,
                values,
                attn_mask=causal_lower_right(count, start + count) if start else None,
                is_causal=not start,
                scale=how.scale,
                enable_gqa=True,
            )
            out[rows] = attended[0].transpose(0, 1)
        return out.view(len(q), -1)

    def _short_chunks(self, by_head: torch.Tensor, how: Attention) -> torch.Tensor:
        """Attention of all chunks of few rows, and of rows that nobody has. Others are left as they are, unless our
        kernel for many rows must run for a chunk of few, for which scratch had no room."""
        step, work = self.step, self.step.works[0]
        if len(work.many) == self._long_tiles(len(by_head)):
            work = Work(work.few, work.few_count, work.many[:0], work.many_count)
        self.step = replace(step, works={0: work})
        attended = super().attention(by_head.reshape(len(by_head), -1), how).view_as(by_head)
        self.step = step
        return attended

    def _long_tiles(self, rows: int) -> int:
        """Tiles for many rows that the chunks of many rows have."""
        assert self.step.chunks, "a step that is captured"
        tokens = self.step.chunks.tokens
        tile = self._choices.of(rows).many.height // (self._pool.heads // self._pool.kv.kv_heads)
        return int((-(-tokens[tokens > FEW_TOKENS] // tile)).sum())

    def _gathered(self, slot: int, tokens: int, how: Attention) -> tuple[torch.Tensor, ...]:
        """Keys and values of a chat's first tokens, bf16 [1, kv_heads, tokens, head_dim] each."""
        pool, layer, tables = self._place(how)
        pages = tables[slot, : -(-tokens // PAGE_TOKENS)].long()
        lying = pool[pages, layer].permute(1, 2, 0, 3, 4)
        return tuple(lying.reshape(2, 1, self._pool.kv.kv_heads, -1, self._pool.kv.head_dim)[:, :, :, :tokens])


@triton.jit
def _silu_times(gate_ptr, up_ptr, count, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < count
    gate = tl.load(gate_ptr + at, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + at, mask=inside).to(tl.float32)
    tl.store(gate_ptr + at, (gate / (1 + tl.exp(-gate)) * up).to(gate_ptr.dtype.element_ty), mask=inside)
