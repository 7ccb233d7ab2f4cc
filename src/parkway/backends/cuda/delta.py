"""The gated delta rule over a step's rows. Positions are cut into blocks of 16; S, the state of a head, is kept as it
was at the last anchor (position 0, 16, 32, …), beside what later rows need of the rows since.

One way for one row of a chat and for thousands. Row i of a block writes u_i = beta_i (v_i - e^(G_i) k_i S) less
the shares of earlier u: u = T r with r_j = v_j - e^(G_j) k_j S and T the inverse of a triangle, row i made of rows
up to i alone. `prepare` makes all T side by side; `rule` walks the blocks of a chat in order, with products only. All
16 rows of a block are computed, those that are not there as exact zeros, so neither the cut of a chat into steps nor
the other rows change a bit.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from parkway.backends import DeltaNet, StateShape
from parkway.backends.cuda import delta_kernels, delta_rows
from parkway.backends.cuda.attention_work import Chunks
from parkway.errors import Unsupported

Words = npt.NDArray[np.int32]
BLOCK = delta_kernels.BLOCK_ROWS

_kept: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


class Config(NamedTuple):
    """How the rule is cut for the machine. lanes: of v_dim in a program."""

    lanes: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class States:
    """What all slots keep of all delta nets. What nobody wrote is whatever was there: positions say what is read.

    matrices float32 [slots, layers, v_heads, k_dim, v_dim]; of the rows since the anchor: keys bf16 [slots, layers,
    BLOCK, k_heads, k_dim], wrongs (r) float32 [slots, layers, v_heads, BLOCK, v_dim], gains float32 [slots, layers,
    v_heads, (log-decay, beta), BLOCK]; inputs of the convolution bf16 [slots, layers, taps - 1, channels].
    """

    shape: StateShape
    matrices: torch.Tensor
    keys: torch.Tensor
    wrongs: torch.Tensor
    gains: torch.Tensor
    inputs: torch.Tensor

    @property
    def bytes(self) -> int:
        return len(self.matrices) * slot_bytes(self.shape)

    @classmethod
    def allocate(cls, slots: int, shape: StateShape, device: torch.device) -> "States":
        made = {
            name: torch.empty((slots, *size), dtype=dtype, device=device)
            for name, (size, dtype) in _parts(shape).items()
        }
        return cls(shape, **made)


@dataclass(frozen=True, slots=True)
class Runs:
    """Where a step's chats are, int32 on the device. All but `positions` and `slots` may be longer than they need be.

    positions (-1: nobody's row), slots [rows]; runs [runs, 5]: first row, rows (0: no such run), slot, first position,
    its first block; blocks [blocks, 2]: run (-1: no such block), which of the run's blocks it is.
    """

    positions: torch.Tensor
    slots: torch.Tensor
    runs: torch.Tensor
    blocks: torch.Tensor


def candidates(shape: StateShape) -> list[Config]:
    """What may compute the rule, best first. All give the same bits. Raises Unsupported."""
    found = [config for config in (Config(32, 4, 2), Config(16, 2, 2)) if shape.v_dim % config.lanes == 0]
    if not found or shape.taps < 2:
        sizes = f"{shape.k_dim} x {shape.v_dim} with a convolution over {shape.taps} tokens"
        raise Unsupported(f"delta nets of {sizes}; the kernels need multiples of 16, and 2 tokens at least")
    return found


def most_blocks(rows: int, runs: int) -> int:
    """Of a step of so many rows in at most so many runs, each of which may begin and end within a block."""
    return min(rows, rows // BLOCK + 2 * runs) if runs else 0


def slot_bytes(shape: StateShape) -> int:
    """Of what one chat keeps, however long it is."""
    return sum(math.prod(size) * dtype.itemsize for size, dtype in _parts(shape).values())


def _parts(shape: StateShape) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Sizes and types of one slot, by the names of `States`."""
    channels = 2 * shape.k_heads * shape.k_dim + shape.v_heads * shape.v_dim
    of_v = (shape.layers, shape.v_heads)
    return {
        "matrices": ((*of_v, shape.k_dim, shape.v_dim), torch.float32),
        "keys": ((shape.layers, BLOCK, shape.k_heads, shape.k_dim), torch.bfloat16),
        "wrongs": ((*of_v, BLOCK, shape.v_dim), torch.float32),
        "gains": ((*of_v, 2, BLOCK), torch.float32),
        "inputs": ((shape.layers, shape.taps - 1, channels), torch.bfloat16),
    }


def list_runs(chunks: Chunks, runs: Words, blocks: Words) -> None:
    """Writes the lists of `Runs` for a step's chunks, on the host."""
    ends = chunks.start + chunks.tokens
    counts = -(-ends // BLOCK) - chunks.start // BLOCK
    firsts = np.cumsum(counts, dtype=np.int32) - counts
    many, total = len(counts), int(counts.sum())
    runs[:many] = np.stack([*chunks, firsts], axis=1)
    runs[many:] = 0
    blocks[:total, 0] = np.repeat(np.arange(many, dtype=np.int32), counts)
    blocks[:total, 1] = np.arange(total, dtype=np.int32) - np.repeat(firsts, counts)
    blocks[total:] = -1


def _by_tap(convolution: torch.Tensor, taps: int) -> torch.Tensor:
    """[taps, channels] of a convolution's weights, made once and kept as long as they live."""
    made: torch.Tensor | None = _kept.get(convolution)
    if made is None:
        made = _kept[convolution] = convolution.view(-1, taps).T.contiguous()
    return made


def delta_net(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    how: DeltaNet,
    states: States,
    at: Runs,
    config: Config,
    *,
    pdl: int = 0,
) -> torch.Tensor:
    """`Operations.delta_net` of bf16 rows with any distance between them."""
    shape, layer = states.shape, how.layer
    heads = (shape.k_heads, shape.v_heads, shape.k_dim, shape.v_dim)
    kept, keys, gains = states.inputs[:, layer], states.keys[:, layer], states.gains[:, layer]
    taps = _by_tap(how.convolution, shape.taps)
    mixed = delta_rows.inputs(q, k, v, at.positions, at.slots, kept, taps, heads, how.epsilon, pdl=pdl)
    count, device = len(at.blocks), q.device
    block_keys = torch.empty(count, shape.k_heads, BLOCK, shape.k_dim, dtype=torch.bfloat16, device=device)
    shares = torch.empty(count, shape.v_heads, 4, BLOCK, BLOCK, dtype=torch.bfloat16, device=device)
    factors = torch.empty(count, shape.v_heads, 4, BLOCK, dtype=torch.float32, device=device)
    workspace = (block_keys, shares, factors)
    options = {"enable_fp_fusion": False, "launch_pdl": bool(pdl)}
    delta_kernels.prepare[(count, shape.v_heads)](
        *(*workspace, mixed, a, a.stride(0), b, b.stride(0), how.decay, how.bias, at.runs, at.blocks),
        *(keys, keys.stride(0), gains, gains.stride(0), *heads, how.tiled, pdl),
        num_warps=1,
        **options,
    )
    out = torch.empty(len(q), shape.v_heads * shape.v_dim, dtype=torch.bfloat16, device=device)
    of_layer = (states.matrices[:, layer], states.wrongs[:, layer], gains, keys, kept)
    delta_kernels.rule[(shape.v_heads * shape.v_dim // config.lanes, len(at.runs))](
        *(out, *workspace, mixed, q, q.stride(0), k, k.stride(0), v, v.stride(0), at.runs),
        *(each for tensor in of_layer for each in (tensor, tensor.stride(0))),
        *(*heads, how.tiled, shape.taps, config.lanes, pdl),
        num_warps=config.warps,
        num_stages=config.stages,
        **options,
    )
    return out
