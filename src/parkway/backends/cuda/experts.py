"""A mixture of experts on a step's rows: routed, sorted by expert, multiplied tile by tile, and combined.

Neither who else is in an expert's tile nor how many there are changes a bit of a row: its choice is its own, its
products are running sums over ascending k, and its experts' results, rounded to bf16 each, are added in the order of
choice.
"""

import itertools
from collections.abc import Sequence

import torch

from parkway.backends import Activation, Experts
from parkway.backends.cuda import experts_plain, experts_quantised, experts_router, experts_rows, experts_stream
from parkway.backends.cuda.chooser import Chooser, bucket
from parkway.backends.cuda.device import Device
from parkway.backends.cuda.experts_config import FEW_ROWS, STREAM, ExpertsConfig, candidates
from parkway.backends.cuda.experts_quantised import Rooms
from parkway.backends.cuda.experts_route import Routes, route
from parkway.backends.cuda.experts_rows import Sum
from parkway.backends.cuda.experts_stack import AnyStack, QuantStack
from parkway.backends.cuda.launch import has_warpgroups
from parkway.backends.cuda.linears import Linears
from parkway.backends.cuda.rows import rms_norm
from parkway.backends.cuda.tuner import LAUNCHES
from parkway.backends.cuda.weights import CudaMatrix, DenseMatrix

Stacks = tuple[AnyStack, AnyStack, AnyStack]
"""Gate, up and down."""


def mixture(
    x: torch.Tensor,
    logits: torch.Tensor,
    how: Experts,
    stacks: Stacks,
    residual: torch.Tensor,
    config: ExpertsConfig,
    rooms: Rooms,
    *,
    pdl: int = 0,
) -> Sum:
    """residual + the sum of the chosen experts' results times their weights, bf16 [rows, width].

    x bf16 [rows, width]; logits fp32 [rows, experts], contiguous; residual bf16 like x. `how` says what is chosen and
    how it is weighed. `pdl`: kernels begin before those ahead of them in the stream have ended.
    """
    of_all = how.softmax == "all" and not how.normalised
    routes = route(logits, how.chosen, of_all=of_all, tile=config.rows, pdl=pdl)
    hidden = _hidden(x, routes, stacks, how.activation, config, rooms, pdl)
    results = _results(hidden, len(x), routes, stacks[2], config, rooms, pdl)
    return Sum(results, routes, residual)


def _hidden(
    x: torch.Tensor,
    routes: Routes,
    stacks: Stacks,
    kind: Activation,
    config: ExpertsConfig,
    rooms: Rooms,
    pdl: int,
) -> torch.Tensor:
    """activation(x Gᵀ) * (x Uᵀ) by place."""
    gate, up, _ = stacks
    as_is = isinstance(gate, QuantStack) and isinstance(up, QuantStack) and len(x) <= FEW_ROWS
    ordered = as_is or config.kernel == STREAM
    if ordered:
        rows = experts_rows.spread(x, routes, pdl=pdl)
    if isinstance(gate, QuantStack) and isinstance(up, QuantStack) and as_is:
        return experts_quantised.gated(rows, len(x), routes, gate, up, kind, pdl=pdl)
    pair = rooms.decoded(gate, 0), rooms.decoded(up, 1)
    hidden = x.new_empty((len(routes.row_of), gate.rows))
    if config.kernel == STREAM:
        experts_stream.launch(rows, routes, *pair, config.rows, config.up, kind, hidden, pdl=pdl)
    else:
        height = _height(config, len(x))
        experts_plain.launch(x, routes, *pair, height, config.up, kind, hidden, ordered=False, pdl=pdl)
    return hidden


def _results(
    hidden: torch.Tensor, rows: int, routes: Routes, down: AnyStack, config: ExpertsConfig, rooms: Rooms, pdl: int
) -> torch.Tensor:
    """hidden Dᵀ by place."""
    if isinstance(down, QuantStack) and rows <= FEW_ROWS:
        return experts_quantised.linear(hidden, rows, routes, down, pdl=pdl)
    matrix = rooms.decoded(down, 0)
    results = hidden.new_empty((len(hidden), down.rows))
    if config.kernel == STREAM:
        experts_stream.launch(hidden, routes, matrix, None, config.rows, config.down, "silu", results, pdl=pdl)
    else:
        height = _height(config, rows)
        experts_plain.launch(hidden, routes, matrix, None, height, config.down, "silu", results, ordered=True, pdl=pdl)
    return results


def _height(config: ExpertsConfig, rows: int) -> int:
    """Rows that an expert may have in a tile: each goes to it once."""
    return min(config.rows, bucket(rows))


class ExactExperts:
    """Mixtures of experts in the configurations of a chooser. `rooms`: large enough for every stack."""

    def __init__(self, chooser: Chooser, linears: Linears, device: Device, rooms: Rooms) -> None:
        self._chooser = chooser
        self._linears = linears
        self._streams = device.is_gpu and has_warpgroups()
        self._rooms = rooms

    def routed(
        self, x: torch.Tensor, weight: torch.Tensor, epsilon: float, router: CudaMatrix, *, pdl: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`Operations.routed`; which kernels compute it depends on the router alone."""
        if isinstance(router, DenseMatrix) and experts_router.suits(router):
            return experts_router.norm_and_route(x, weight, epsilon, router, pdl=pdl)
        normed = rms_norm(x, weight, epsilon, pdl=pdl)
        return normed, self._linears.rows(normed, router, out_dtype=torch.float32)

    def add(self, x: torch.Tensor, logits: torch.Tensor, how: Experts, residual: torch.Tensor, *, pdl: int = 0) -> Sum:
        """`Operations.experts_add`."""
        config = self._config(x, how, residual, pdl)
        return mixture(x, logits, how, (how.gate, how.up, how.down), residual, config, self._rooms, pdl=pdl)

    def _config(self, x: torch.Tensor, how: Experts, residual: torch.Tensor, pdl: int) -> ExpertsConfig:
        stacks: Stacks = (how.gate, how.up, how.down)
        gate, as_is = stacks[0], all(isinstance(stack, QuantStack) for stack in stacks)
        streams = self._streams and gate.rows % 8 == gate.columns % 8 == 0  # rows begin at multiples of 16 bytes

        def offered(rows: int) -> Sequence[ExpertsConfig]:
            named = candidates(rows, streams=streams)
            return named[:1] if as_is and rows <= FEW_ROWS else named

        drawn: list[torch.Tensor] = []
        turn = itertools.count()

        def launch(config: ExpertsConfig, weights: Stacks) -> None:
            if not drawn:  # at the first launch, which no graph records
                drawn.extend(_drawn_logits(x, how.count))
            logits = drawn[next(turn) % len(drawn)]
            mixture(x, logits, how, weights, residual, config, self._rooms, pdl=pdl).rows(pdl=pdl)

        types = " ".join(stack.type if isinstance(stack, QuantStack) else "bf16" for stack in stacks)
        kind = f"{how.activation} {gate.bias is not None}"
        shape = f"{types} {how.chosen} of {how.count} {gate.rows} x {gate.columns} {kind}"
        config: ExpertsConfig = self._chooser.pick("experts", shape, len(x), offered, stacks, launch)
        return config


def _drawn_logits(x: torch.Tensor, count: int) -> Sequence[torch.Tensor]:
    """Logits for timing: what is timed must not depend on which rows a step happens to have, nor be in a cache since
    the launch before."""
    chance = torch.Generator(x.device).manual_seed(0)
    return [torch.randn((len(x), count), generator=chance, device=x.device) for _ in range(LAUNCHES)]
