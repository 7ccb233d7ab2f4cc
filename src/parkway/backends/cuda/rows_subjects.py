"""Adversarial inputs for the bit check of what is done to each row by itself: norms, and what precedes attention.

There is one way to compute them, whose warps depend on the width: a model whose rows differ is not served. Exponents
are wide, and one row is a stranger's, of infinities and NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from parkway.backends import HeadNorms, Rope
from parkway.backends.cuda.attention_subjects import Shape
from parkway.backends.cuda.rows import rms_norm, rope_and_write
from parkway.plan.step import PAGE_TOKENS

ROWS, STRANGER, EPSILON = 70, 35, 1e-6


class OnlyWay(NamedTuple):
    """Of computing a row."""

    number: int = 0


@dataclass(frozen=True, slots=True)
class NormSubject:
    """x and residual bf16 [rows, width], weight float32 [width]."""

    x: torch.Tensor
    residual: torch.Tensor
    weight: torch.Tensor
    name: str = "norm"
    candidates: Sequence[OnlyWay] = (OnlyWay(),)

    @property
    def rows(self) -> int:
        return len(self.x)

    def suits(self, config: OnlyWay, rows: int) -> bool:
        return True

    def output(self, config: OnlyWay, rows: slice) -> torch.Tensor:
        """The bits of those rows, with the residual and without, int16 [rows, 2 x width]."""
        x, residual = self.x[rows], self.residual[rows]
        made = [rms_norm(x, self.weight, EPSILON), rms_norm(x, self.weight, EPSILON, residual)]
        return torch.cat(made, dim=1).view(torch.int16)


@dataclass(frozen=True, slots=True)
class RopeSubject:
    """Rows of one chat: row r is at position r. qkv bf16 [rows, (heads + 2 kv_heads) x head_dim]; norms of heads."""

    shape: Shape
    qkv: torch.Tensor
    norms: HeadNorms
    name: str = "rope and write"
    candidates: Sequence[OnlyWay] = (OnlyWay(),)

    @property
    def rows(self) -> int:
        return len(self.qkv)

    def suits(self, config: OnlyWay, rows: int) -> bool:
        return True

    def output(self, config: OnlyWay, rows: slice) -> torch.Tensor:
        """The bits of what q became and of what was written as k and v, with both pairs of a rope, int16 [rows, ..]."""
        ways = (Rope(10000.0, self.shape.head_dim, pairs) for pairs in ("neighbours", "halves"))
        return torch.cat([part for rope in ways for part in self._computed(rope, rows)], dim=1).view(torch.int16)

    def _computed(self, rope: Rope, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        heads, kv_heads, head_dim = self.shape[:3]
        device, pages = self.qkv.device, -(-self.rows // PAGE_TOKENS)
        q, k, v = self.qkv[rows].clone().split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], dim=1)
        lanes = (pages, 1, 2, kv_heads, PAGE_TOKENS, head_dim)
        pool = torch.full(lanes, torch.nan, dtype=torch.bfloat16, device=device)
        positions = torch.arange(rows.start, rows.stop, dtype=torch.int32, device=device)
        slots = torch.zeros_like(positions)
        tables = torch.arange(pages, dtype=torch.int32, device=device)[None]
        turns = torch.from_numpy(rope.turns(self.rows)).to(device)
        made = rope_and_write(q, k, v, turns, positions, slots, tables, pool, 0, rope, self.norms)
        written = pool[:, 0].permute(0, 3, 1, 2, 4).reshape(pages * PAGE_TOKENS, -1)[rows]
        return made, written


def subjects(device: torch.device, seed: int, shapes: Sequence[Shape]) -> list[NormSubject | RopeSubject]:
    """Of each width and each kind of heads that a model's attention has."""
    chance = torch.Generator(device).manual_seed(seed)
    made: list[NormSubject | RopeSubject] = []
    for heads, kv_heads, head_dim in dict.fromkeys(shape[:3] for shape in shapes):
        width = heads * head_dim
        made.append(NormSubject(_wide(chance, width), _wide(chance, width), _wide(chance, width)[0].float()))
        norms = HeadNorms(_wide(chance, head_dim)[0].float(), _wide(chance, head_dim)[0].float(), EPSILON)
        made.append(
            RopeSubject(Shape(heads, kv_heads, head_dim), _wide(chance, (heads + 2 * kv_heads) * head_dim), norms)
        )
    return made


def _wide(chance: torch.Generator, width: int) -> torch.Tensor:
    """bf16 [ROWS, width]."""
    drawn = torch.randn(ROWS, width, generator=chance, device=chance.device)
    drawn *= torch.exp2(torch.randint(-12, 13, drawn.shape, generator=chance, device=chance.device).float())
    drawn[STRANGER, ::3], drawn[STRANGER, 1::3] = torch.nan, torch.inf
    return drawn.to(torch.bfloat16)
