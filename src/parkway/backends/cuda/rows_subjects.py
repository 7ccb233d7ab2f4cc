"""Adversarial inputs for the bit check of what is done to each row by itself: norms, and what precedes attention.

There is one way to compute them, whose warps depend on the width: a model whose rows differ is not served. Exponents
are wide, and one row is a stranger's, of infinities and NaN.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from parkway.backends import HeadNorms, Rope
from parkway.backends.bit_check import Config
from parkway.backends.cuda.attention_subjects import Shape
from parkway.backends.cuda.rows import rms_norm, rope_and_write
from parkway.plan.step import PAGE_TOKENS

ROWS, STRANGER, EPSILON = 70, 35, 1e-6


@dataclass(frozen=True, slots=True)
class RowsSubject:
    """`compute` makes bf16 [rows, ..] of some of the rows, in the only way that there is."""

    name: str
    compute: Callable[[slice], torch.Tensor]
    candidates: Sequence[Config] = ((0,),)
    rows: int = ROWS

    def suits(self, config: Config, rows: int) -> bool:
        return True

    def output(self, config: Config, rows: slice) -> torch.Tensor:
        return self.compute(rows).view(torch.int16)


def subjects(device: torch.device, seed: int, shapes: Sequence[Shape]) -> list[RowsSubject]:
    """Of each width and each kind of heads that a model's attention has."""
    chance = torch.Generator(device).manual_seed(seed)
    made: list[RowsSubject] = []
    for heads, kv_heads, head_dim in dict.fromkeys(shape[:3] for shape in shapes):
        x, residual, weight = (_wide(chance, heads * head_dim) for _ in range(3))
        made.append(RowsSubject("norm", partial(_normed, x, residual, weight[0].float())))
        q_norm, k_norm = (_wide(chance, head_dim)[0].float() for _ in range(2))
        qkv = _wide(chance, (heads + 2 * kv_heads) * head_dim)
        turned = partial(_turned, Shape(heads, kv_heads, head_dim), qkv, HeadNorms(q_norm, k_norm, EPSILON))
        made.append(RowsSubject("rope and write", turned))
    return made


def _normed(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, rows: slice) -> torch.Tensor:
    """Without the residual and with it, [rows, 2 x width]."""
    x, residual = x[rows], residual[rows]
    return torch.cat([rms_norm(x, weight, EPSILON), rms_norm(x, weight, EPSILON, residual)], dim=1)


def _turned(shape: Shape, qkv: torch.Tensor, norms: HeadNorms, rows: slice) -> torch.Tensor:
    """What q became and what was written as k and v, with either pairs of a rope. Row r is at position r of a chat."""
    ways = (Rope(10000.0, shape.head_dim, pairs) for pairs in ("neighbours", "halves"))
    return torch.cat([part for rope in ways for part in _written(shape, qkv, norms, rope, rows)], dim=1)


def _written(
    shape: Shape, qkv: torch.Tensor, norms: HeadNorms, rope: Rope, rows: slice
) -> tuple[torch.Tensor, torch.Tensor]:
    heads, kv_heads, head_dim = shape[:3]
    device, pages = qkv.device, -(-len(qkv) // PAGE_TOKENS)
    q, k, v = qkv[rows].clone().split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], dim=1)
    lanes = (pages, 1, 2, kv_heads, PAGE_TOKENS, head_dim)
    pool = torch.full(lanes, torch.nan, dtype=torch.bfloat16, device=device)
    positions = torch.arange(rows.start, rows.stop, dtype=torch.int32, device=device)
    tables = torch.arange(pages, dtype=torch.int32, device=device)[None]
    turns = torch.from_numpy(rope.turns(len(qkv))).to(device)
    made = rope_and_write(q, k, v, turns, positions, torch.zeros_like(positions), tables, pool, 0, rope, norms)
    return made, pool[:, 0].permute(0, 3, 1, 2, 4).reshape(pages * PAGE_TOKENS, -1)[rows]


def _wide(chance: torch.Generator, width: int) -> torch.Tensor:
    """bf16 [ROWS, width]."""
    drawn = torch.randn(ROWS, width, generator=chance, device=chance.device)
    drawn *= torch.exp2(torch.randint(-12, 13, drawn.shape, generator=chance, device=chance.device).float())
    drawn[STRANGER, ::3], drawn[STRANGER, 1::3] = torch.nan, torch.inf
    return drawn.to(torch.bfloat16)
