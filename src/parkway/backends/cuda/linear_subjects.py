"""Adversarial inputs for the bit check of matrix products: small, and made to show any difference in order.

Exponents are wide and the second half of every sum cancels the first, so what is left is the rounding of the order in
which it was added, in every bit of the output. Zeros have signs; some numbers are subnormal; some rows are strangers
that hold infinities and NaN; and whatever lies around the rows and the weights is NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from parkway.backends import Activation
from parkway.backends.cuda.launch import has_warpgroups
from parkway.backends.cuda.linear import gated, linear
from parkway.backends.cuda.linear_config import LinearConfig, every_candidate

_ROWS = 300
_STRANGERS = (3, 64, 130, 257)
_MARGIN = 64
"""NaN rows behind the last one, NaN columns right of the last one."""


@dataclass(frozen=True, slots=True)
class LinearSubject:
    """One product. `weights`: one matrix, or gate and up."""

    name: str
    candidates: Sequence[LinearConfig]
    x: torch.Tensor
    weights: tuple[torch.Tensor, ...]
    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    out_dtype: torch.dtype = torch.bfloat16
    activation: Activation = "silu"

    @property
    def rows(self) -> int:
        return len(self.x)

    def suits(self, config: LinearConfig, rows: int) -> bool:
        """Any number of rows may be cut into any tiles."""
        return True

    def output(self, config: LinearConfig, rows: slice) -> torch.Tensor:
        """The bits of those rows, as integers; those of strangers are 0."""
        x = self.x[rows]
        residual = None if self.residual is None else self.residual[rows]
        if len(self.weights) == 2:
            made = gated(x, self.weights[0], self.weights[1], config, activation=self.activation)
        else:
            made = linear(x, self.weights[0], config, bias=self.bias, residual=residual, out_dtype=self.out_dtype)
        bits = made.view(torch.int16 if made.dtype == torch.bfloat16 else torch.int32)
        known = torch.isfinite(self.x[rows]).all(dim=1, keepdim=True)
        return bits * known


def subjects(device: torch.device, seed: int, activations: Sequence[Activation] = ("silu",)) -> list[LinearSubject]:
    """Both operations with all their epilogues, in shapes that no tile divides and in one that all divide."""
    chance = torch.Generator(device).manual_seed(seed)
    plain, pair = (every_candidate(matrices=matrices, streams=has_warpgroups()) for matrices in (1, 2))
    biased = LinearSubject(
        "linear",
        plain,
        strange_rows(chance, _ROWS, 272),
        (wide_weight(chance, 203, 272),),
        bias=wide(chance, (203,)),
        residual=wide(chance, (_ROWS, 203)),
        out_dtype=torch.float32,
    )
    narrow = LinearSubject("linear", plain, strange_rows(chance, _ROWS, 1040), (wide_weight(chance, 200, 1040),))
    deep = LinearSubject("linear", plain, strange_rows(chance, _ROWS, 4096), (wide_weight(chance, 512, 4096),))
    gate, up = wide_weight(chance, 200, 1040), wide_weight(chance, 200, 1040)
    x = strange_rows(chance, _ROWS, 1040)
    return [biased, narrow, deep, *(LinearSubject("gated", pair, x, (gate, up), activation=how) for how in activations)]


def strange_rows(chance: torch.Generator, rows: int, inputs: int) -> torch.Tensor:
    """Rows [rows, inputs] inside NaN, some of them strangers."""
    around = torch.full((rows + _MARGIN, inputs + _MARGIN), torch.nan, dtype=torch.bfloat16, device=chance.device)
    x = around[:rows, :inputs]
    x.copy_(_repeated(wide(chance, (rows, inputs)), 1))
    for at, row in enumerate(row for row in _STRANGERS if row < rows):
        x[row, at::7] = (torch.inf, -torch.inf, torch.nan)[at % 3]
    return x


def wide_weight(chance: torch.Generator, outputs: int, inputs: int) -> torch.Tensor:
    """A matrix with NaN behind it."""
    around = torch.full((outputs + _MARGIN, inputs), torch.nan, dtype=torch.bfloat16, device=chance.device)
    around[:outputs] = _repeated(wide(chance, (outputs, inputs)), -1)
    return around[:outputs]


def wide(chance: torch.Generator, shape: tuple[int, ...]) -> torch.Tensor:
    """bf16 of either sign: most within 2^-10 .. 2^10, some zeros of either sign, some subnormal."""
    made = torch.randn(shape, generator=chance, device=chance.device)
    made *= torch.exp2(torch.randint(-10, 11, shape, generator=chance, device=chance.device).float())
    kind = torch.randint(0, 20, shape, generator=chance, device=chance.device)
    made = torch.where(kind == 0, made.sign() * 0.0, made)
    return torch.where(kind == 1, made * 2.0**-130, made).to(torch.bfloat16)


def _repeated(values: torch.Tensor, sign: int) -> torch.Tensor:
    """The first half of the columns, then the same again in another order, times `sign`."""
    half = values.shape[1] // 2
    return torch.cat([values[:, :half], sign * values[:, :half].roll(1, dims=1)], dim=1)
