"""Attention over pages: what is launched for a step's lists, and the configurations that may be.

A row's keys are walked in the order of their positions, 64 (a page) at a time, from the page where its window begins.
Every SPLIT positions are a split, with a largest score, a sum and weighted values of its own; splits are merged in
order. Nothing of that depends on the configuration, the list or the other rows, so neither do the bits of a row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from parkway.backends.cuda import attention_kernels as kernels
from parkway.backends.cuda.attention_work import SPLIT
from parkway.backends.cuda.launch import multiprocessors
from parkway.plan.step import PAGE_TOKENS

REGISTERS = {4: 168, 8: 128}
"""Of a thread, by warps: with these, three or two programs of `few` run at once on a multiprocessor."""
WIDE_ROWS = 4
"""Up to so many rows `few`'s programs are of eight warps."""
MOST_LANES = 256
"""Of a head: what a program has registers for."""
CALM_ROWS = 8
"""Up to so many rows a launch of `few` is as wide as what runs at once; beyond, programs are exchanged for others."""


class Config(NamedTuple):
    """How one of the kernels is cut for the machine.

    apart: 1 for `few`, whose splits may run side by side, 0 for `many`. height: lines of a tile, tokens x heads of a
    group. registers: the most that a thread may have, so that more programs run at once; 0: as many as it likes.
    """

    apart: int
    height: int
    warps: int
    stages: int
    registers: int = 0


class Configs(NamedTuple):
    """What a step is computed with."""

    few: Config
    many: Config


class Choices(NamedTuple):
    """What steps may be computed with. All of `few` are of one height, so a step's lists suit every one."""

    few: Sequence[Config]
    many: Sequence[Config]

    def of(self, rows: int) -> Configs:
        """For steps of so many rows: many warps where few programs are to be had, many programs elsewhere."""
        wide = rows <= WIDE_ROWS
        few = next((config for config in self.few if (config.warps > 4) == wide), self.few[0])
        return Configs(few, self.many[0])


@dataclass(frozen=True, slots=True)
class Work:
    """A step's lists on the device, int32 as `attention_work.Lists` says. A list of length 0 is not launched."""

    few: torch.Tensor
    few_count: torch.Tensor
    many: torch.Tensor
    many_count: torch.Tensor


@dataclass(frozen=True, slots=True)
class Scratch:
    """What splits leave for the program that merges them; layers and steps share one.

    values float32 [partials, heads, head_dim], largest scores and sums float32 [partials, heads]; how many splits of
    the tile that begins there have arrived, int32 [partials, kv_heads], 0 between launches.
    """

    values: torch.Tensor
    tops: torch.Tensor
    totals: torch.Tensor
    arrived: torch.Tensor

    @classmethod
    def allocate(cls, partials: int, heads: int, kv_heads: int, head_dim: int, device: torch.device) -> "Scratch":
        values = torch.empty(partials, heads, head_dim, dtype=torch.float32, device=device)
        tops, totals = torch.empty(2, partials, heads, dtype=torch.float32, device=device)
        return cls(values, tops, totals, torch.zeros(partials, kv_heads, dtype=torch.int32, device=device))


def takes_heads_of(head_dim: int) -> bool:
    """Whether the kernels compute heads of so many lanes."""
    return head_dim % 16 == 0 and 0 < head_dim <= MOST_LANES


def few_candidates(group: int, head_dim: int) -> list[Config]:
    """What may compute few rows, where `group` heads share keys of `head_dim` lanes."""
    height = max(16, triton.next_power_of_2(group))
    return [Config(1, height, warps, 3, most if head_dim <= 128 else 0) for warps, most in REGISTERS.items()]


def many_candidates(group: int, head_dim: int) -> list[Config]:
    """What may compute many rows, best first. Two sums of weighted values must fit a program's registers."""
    if head_dim > 128:
        return [Config(0, max(64, triton.next_power_of_2(group)), 8, 2)]
    return [Config(0, 64, 4, 3), Config(0, 128, 8, 3)]


def attention(
    q: torch.Tensor,
    pool: torch.Tensor,
    layer: int,
    tables: torch.Tensor,
    work: Work,
    scratch: Scratch,
    out: torch.Tensor,
    *,
    config: Configs,
    scale: float,
    window: int = 0,
    soft_cap: float = 0.0,
    sinks: torch.Tensor | None = None,
    split: int = SPLIT,
    pdl: int = 0,
) -> torch.Tensor:
    """softmax(scale q kᵀ) v of every row over its chat's positions up to its own: the last `window`, or all where 0.

    q and out are bf16 [rows, heads, head_dim] with any distance between rows, pool is bf16 [pages, layers, 2, kv_heads,
    64, head_dim], tables int32 [slots, pages]. A soft_cap c makes c tanh(score / c) of a score; sinks, float32 [heads],
    are one more score each in the sums of their heads. The lists must have been cut for `config`, `window` and `split`.
    """
    kv_heads, head_dim = pool.shape[3], pool.shape[5]
    places = (q, q.stride(0), pool, layer, pool.shape[1], tables, tables.stride(0))
    scales = _scales(scale, soft_cap)
    fixed = {
        "KV_HEADS": kv_heads,
        "GROUP": q.shape[1] // kv_heads,
        "WIDTH": head_dim,
        "SPLIT": split,
        "WINDOWED": window > 0,
        "CAPPED": soft_cap > 0,
        "SINKS": sinks is not None,
        "PDL": pdl,
    }
    ends = (out, out.stride(0), scratch.totals if sinks is None else sinks, *scales, window)
    if len(work.few):
        left = (scratch.values, scratch.tops, scratch.totals, scratch.arrived)
        grid = (kv_heads, _programs(len(q), q.device, kv_heads, len(work.few)))
        kernels.few[grid](*places, work.few, work.few_count, *left, *ends, **fixed, **_options(config.few, pdl))
    if len(work.many):
        grid = (kv_heads, len(work.many))
        bulk = _rows_of(pool)
        kernels.many[grid](*places, work.many, work.many_count, bulk, *ends, **fixed, **_options(config.many, pdl))
    return out


def _scales(scale: float, soft_cap: float) -> tuple[float, float]:
    """What a score is multiplied by for exp2, and before tanh where there is a cap."""
    if soft_cap:
        return soft_cap / math.log(2), 2 * scale / soft_cap / math.log(2)
    return scale / math.log(2), 0.0


def _options(config: Config, pdl: int) -> dict[str, int | bool]:
    options: dict[str, int | bool] = {"HEIGHT": config.height, "num_warps": config.warps, "num_stages": config.stages}
    if config.registers:
        options["maxnreg"] = config.registers
    return options | {"enable_fp_fusion": False, "launch_pdl": bool(pdl)}


def side_by_side(device: torch.device, kv_heads: int) -> int:
    """Of `few`'s items, as `attention_work.Sizes` says: half as many as occupy every multiprocessor with a program.

    A program that walks alone on a multiprocessor takes twice its share of the memory's bandwidth.
    """
    return max(1, multiprocessors(device) // (2 * kv_heads)) if device.type == "cuda" else 1


def _programs(rows: int, device: torch.device, kv_heads: int, items: int) -> int:
    """Of `few`, for each head."""
    each = 3 if rows <= CALM_ROWS else 8
    at_once = each * (multiprocessors(device) if device.type == "cuda" else 1)
    return max(1, min(at_once // kv_heads, items))


def _rows_of(pool: torch.Tensor) -> TensorDescriptor:
    """The pool as rows of one token and head, taken 64 at a time. Raises ValueError where int32 can't count them."""
    head_dim = pool.shape[-1]
    rows = pool.numel() // head_dim
    if rows >= 2**31:
        raise ValueError(f"the pool has {rows} rows of {head_dim}: int32 does not count so many")
    return TensorDescriptor(pool, [rows, head_dim], [head_dim, 1], [PAGE_TOKENS, triton.next_power_of_2(head_dim)])
