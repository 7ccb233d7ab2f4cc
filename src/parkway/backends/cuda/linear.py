"""Products of bf16 rows and bf16 matrices: x Wᵀ with bias and residual, and the gated product of a feed-forward layer.

An output is one fp32 sum over ascending k, never split, then its epilogue in fp32 and one rounding. So its bits depend
on its own row and weights alone, whatever the configuration.
"""

import torch

from parkway.backends import Activation
from parkway.backends.cuda import linear_plain, linear_stream
from parkway.backends.cuda.linear_config import GATES, LinearConfig

_LAUNCH = (linear_plain.launch, linear_stream.launch)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    config: LinearConfig,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    pdl: int = 0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """x Wᵀ + bias + residual, `out_dtype` [rows, outputs], into `out` if it is there.

    x bf16 [rows, inputs], its rows at any multiple of 8 apart; weight bf16 [outputs, inputs], contiguous; bias bf16 or
    fp32 [outputs]; residual bf16 [rows, outputs]. `pdl`: the kernel begins before the one ahead of it in the stream has
    ended, which must not write the weight. Raises ValueError if the shapes do not fit.
    """
    _check(x, weight)
    y = x.new_empty((len(x), len(weight)), dtype=out_dtype) if out is None else out
    _LAUNCH[config.kernel](x, weight, None, config, y, bias=bias, residual=residual, pdl=pdl)
    return y


def gated(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    config: LinearConfig,
    *,
    activation: Activation = "silu",
    pdl: int = 0,
) -> torch.Tensor:
    """activation(x Gᵀ) * (x Uᵀ), bf16 [rows, outputs]; arguments as in `linear`, gate and up of one shape."""
    _check(x, gate)
    _check(x, up)
    y = x.new_empty((len(x), len(gate)))
    _LAUNCH[config.kernel](x, gate, up, config, y, gate=GATES[activation], pdl=pdl)
    return y


def _check(x: torch.Tensor, weight: torch.Tensor) -> None:
    if x.shape[1] != weight.shape[1] or x.shape[1] % 16 or not weight.is_contiguous():
        raise ValueError(f"x {tuple(x.shape)} does not fit a weight {tuple(weight.shape)}, or its width is odd")
