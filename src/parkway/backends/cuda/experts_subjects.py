"""Adversarial inputs for the bit check of mixtures of experts.

Sums show their order, logits tie, strangers hold NaN. Rows go to few experts and to many, so that an expert has none,
some or hundreds of them, in a tile with strangers or without.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from parkway.backends import Experts
from parkway.backends.cuda.experts import Stacks, mixture
from parkway.backends.cuda.experts_config import ExpertsConfig, candidates, every_candidate
from parkway.backends.cuda.experts_quantised import Rooms
from parkway.backends.cuda.experts_router import norm_and_route
from parkway.backends.cuda.experts_stack import AnyStack, QuantStack, Stack
from parkway.backends.cuda.launch import has_warpgroups
from parkway.backends.cuda.linear_subjects import strange_rows, wide, wide_weight
from parkway.backends.cuda.quantised import pack
from parkway.backends.cuda.quantised_subjects import wide_blocks
from parkway.backends.cuda.weights import DenseMatrix

_ROWS = 300


@dataclass(frozen=True, slots=True)
class ExpertsSubject:
    """One mixture; `logits` are the router's."""

    name: str
    candidates: Sequence[ExpertsConfig]
    x: torch.Tensor
    logits: torch.Tensor
    how: Experts
    stacks: Stacks
    residual: torch.Tensor
    rooms: Rooms = field(default_factory=Rooms)

    @property
    def rows(self) -> int:
        return len(self.x)

    def suits(self, config: ExpertsConfig, rows: int) -> bool:
        """Any number of rows may be cut into any tiles."""
        return True

    def output(self, config: ExpertsConfig, rows: slice) -> torch.Tensor:
        """The bits of those rows, as integers; those of strangers are 0."""
        x = self.x[rows]
        logits, residual = self.logits[rows].contiguous(), self.residual[rows]
        made = mixture(x, logits, self.how, self.stacks, residual, config, self.rooms).rows()
        return made.view(torch.int16) * torch.isfinite(x).all(dim=1, keepdim=True)


@dataclass(frozen=True, slots=True)
class RouterSubject:
    """A router, which has but one configuration."""

    x: torch.Tensor
    weight: torch.Tensor
    router: DenseMatrix
    name: str = "router"
    candidates: Sequence[tuple[int, ...]] = ((0,),)

    @property
    def rows(self) -> int:
        return len(self.x)

    def suits(self, config: tuple[int, ...], rows: int) -> bool:
        return True

    def output(self, config: tuple[int, ...], rows: slice) -> torch.Tensor:
        """The bits of those rows, normed, and of their scores; those of strangers are 0."""
        x = self.x[rows]
        normed, scores = norm_and_route(x, self.weight, 1e-5, self.router)
        bits = torch.cat([normed.view(torch.int16).int(), scores.view(torch.int32)], dim=1)
        return bits * torch.isfinite(x).all(dim=1, keepdim=True)


def subjects(device: torch.device, seed: int, types: Sequence[str] = ()) -> list[ExpertsSubject | RouterSubject]:
    """Mixtures with all activations and ways to weigh. Every candidate computes the most common one, in shapes that all
    tiles divide; some compute others, in shapes that none divides.

    Those of quantised `types` are of 300 rows, which multiply decoded matrices; few of them alone multiply others.
    """
    chance = torch.Generator(device).manual_seed(seed)
    offered = every_candidate(streams=has_warpgroups())
    ragged = Experts(11, 3, None, None, None, None, "all", False, "gelu")
    biased = Experts(5, 2, None, None, None, None, "chosen", True, "clamped")
    common = Experts(32, 8, None, None, None, None, "all", True)
    few, many = candidates(1, streams=False), candidates(_ROWS, streams=has_warpgroups())
    some = list(dict.fromkeys([few[0], many[0], many[-1]]))
    router = DenseMatrix(wide_weight(chance, 40, 600), wide(chance, (40,)).float())
    return [
        RouterSubject(strange_rows(chance, _ROWS, 600), wide(chance, (600,)).float(), router),
        subject(chance, some, ragged, rows=_ROWS, width=272, ffn=208),
        subject(chance, some, biased, rows=_ROWS, width=272, ffn=80, biased=True),
        subject(chance, offered, common, rows=_ROWS, width=512, ffn=256),
        *(
            subject(chance, some, replace(common, count=9), rows=_ROWS, width=512, ffn=256, type_name=each)
            for each in types
        ),
    ]


def subject(
    chance: torch.Generator,
    offered: Sequence[ExpertsConfig],
    how: Experts,
    *,
    rows: int,
    width: int,
    ffn: int,
    biased: bool = False,
    type_name: str = "BF16",
) -> ExpertsSubject:
    """Drawn rows and matrices. Most logits are among few numbers, so that they tie; the first expert has most rows."""
    logits = torch.randint(-3, 4, (rows, how.count), generator=chance, device=chance.device).float()
    logits[: rows * 3 // 4, 0] = 4.0
    logits[::3] += torch.randn((len(logits[::3]), how.count), generator=chance, device=chance.device)
    logits[7::50, 1] = torch.nan
    shapes = ((ffn, width), (ffn, width), (width, ffn))
    gate, up, down = (_stack(chance, type_name, how.count, *shape, biased) for shape in shapes)
    x, residual = strange_rows(chance, rows, width), wide(chance, (rows, width))
    return ExpertsSubject("experts", offered, x, logits, how, (gate, up, down), residual)


def _stack(chance: torch.Generator, type_name: str, count: int, rows: int, columns: int, biased: bool) -> AnyStack:
    bias = wide(chance, (count, rows)).float() if biased else None
    if type_name != "BF16":
        raw = wide_blocks(type_name, chance, count * rows, columns)
        return QuantStack(count, pack("drawn", type_name, raw, columns, chance.device), bias)
    values = torch.cat([wide_weight(chance, rows, columns) for _ in range(count)])
    return Stack(count, values, bias)
