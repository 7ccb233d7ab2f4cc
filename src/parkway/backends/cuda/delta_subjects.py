"""Adversarial inputs for the bit check of the delta rule: chats in slots whose memory is NaN, cut into steps.

Rows alone are compared with rows among others: to reach a row, a chat's earlier rows are computed first, in steps of
other sizes. Exponents are wide, some decays are nothing and some forget everything; rows of a chat end in what is not
finite.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from parkway.backends import DeltaNet, StateShape
from parkway.backends.cuda.attention_work import Chunks
from parkway.backends.cuda.delta import BLOCK, Config, Runs, States, candidates, delta_net, list_runs

CHATS = (70, 33, 16, 50)
"""Tokens of each."""
BROKEN = 3
"""The last rows of the first chat: NaN, then infinities."""
STEPS = (1, 5, 16, 31)
EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class DeltaSubject:
    """One layer's rows: q, k, v, a, b are columns of `inputs` bf16 [rows, columns]. `chats`: how many each has."""

    name: str
    candidates: Sequence[Config]
    shape: StateShape
    net: DeltaNet
    inputs: torch.Tensor
    chats: Sequence[int]

    @property
    def rows(self) -> int:
        return len(self.inputs)

    def suits(self, config: Config, rows: int) -> bool:
        """Any rows may be computed by any program."""
        return True

    def output(self, config: Config, rows: slice) -> torch.Tensor:
        """The bits of those rows as int16 [rows, width]; those of broken rows are 0. All rows are computed in one step,
        fewer of them after those before in steps of their number."""
        whole = rows == slice(0, self.rows)
        size = self.rows if whole else STEPS[rows.start % len(STEPS)]
        made = self.computed(config, self.steps(size))
        made[self.chats[0] - BROKEN : self.chats[0]] = 0
        return made.view(torch.int16)[rows]

    def steps(self, size: int) -> list[list[tuple[int, int, int]]]:
        """Runs (chat, first position, tokens) of steps in which each chat has at most `size` rows."""
        starts = range(0, max(self.chats), size)
        return [[(c, at, min(size, n - at)) for c, n in enumerate(self.chats) if at < n] for at in starts]

    def computed(self, config: Config, steps: Sequence[Sequence[tuple[int, int, int]]]) -> torch.Tensor:
        """bf16 [rows, width] of all rows, those that no step has as 0. Chat c is in slot c."""
        states = self.garbage()
        out = torch.zeros(
            self.rows, self.shape.v_heads * self.shape.v_dim, dtype=torch.bfloat16, device=self.inputs.device
        )
        for step in steps:
            at = [
                row
                for chat, start, tokens in step
                for row in range(self.first_row(chat) + start, self.first_row(chat) + start + tokens)
            ]
            out[at] = self.step(states, step, self.inputs[at], config)
        return out

    def step(
        self, states: States, runs: Sequence[tuple[int, int, int]], rows: torch.Tensor, config: Config
    ) -> torch.Tensor:
        """One step; behind its rows, runs and blocks there is one that is nobody's."""
        shape = self.shape
        around = torch.cat([rows, torch.full_like(rows[:1], torch.nan)])
        widths = (shape.k_heads * shape.k_dim, shape.k_heads * shape.k_dim, shape.v_heads * shape.v_dim)
        q, k, v, a, b = around.split((*widths, shape.v_heads, shape.v_heads), dim=1)
        return delta_net(q, k, v, a, b, self.net, states, self.places(runs), config)[:-1]

    def places(self, runs: Sequence[tuple[int, int, int]]) -> Runs:
        slot, start, tokens = (np.array(column, np.int32) for column in zip(*runs, strict=True))
        chunks = Chunks(np.cumsum(tokens, dtype=np.int32) - tokens, tokens, slot, start)
        listed = np.empty((len(runs) + 1, 5), np.int32)
        blocks = np.empty((int((tokens // BLOCK + 2).sum()), 2), np.int32)
        list_runs(chunks, listed, blocks)
        positions = np.concatenate([np.arange(at, at + count) for at, count in zip(start, tokens, strict=True)])
        rows = (np.append(positions, -1).astype(np.int32), np.append(np.repeat(slot, tokens), 0).astype(np.int32))
        return Runs(*(torch.from_numpy(each).to(self.inputs.device) for each in (*rows, listed, blocks)))

    def garbage(self) -> States:
        """States of slots that nobody has written: NaN."""
        states = States.allocate(len(self.chats), self.shape, self.inputs.device)
        for part in (states.matrices, states.keys, states.wrongs, states.gains, states.inputs):
            part.fill_(torch.nan)
        return states

    def first_row(self, chat: int) -> int:
        """Of a chat, in the inputs."""
        return sum(self.chats[:chat])


def subjects(device: torch.device, seed: int) -> list[DeltaSubject]:
    """One, of heads as wide as most models'."""
    return [subject(device, seed, StateShape(layers=2, k_heads=2, v_heads=4, k_dim=128, v_dim=128, taps=4))]


def subject(
    device: torch.device, seed: int, shape: StateShape, *, tiled: bool = False, chats: Sequence[int] = CHATS
) -> DeltaSubject:
    """Rows that are drawn; those of the first chat end in what is not finite."""
    chance = torch.Generator(device).manual_seed(seed)
    channels = 2 * shape.k_heads * shape.k_dim + shape.v_heads * shape.v_dim

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=chance, device=device)

    inputs = normal(sum(chats), channels + 2 * shape.v_heads)
    inputs[:, :channels] *= torch.exp2(torch.randint(-6, 4, (len(inputs), 1), generator=chance, device=device).float())
    inputs[:, channels:] *= 4
    inputs[chats[0] - BROKEN : chats[0]] = torch.inf
    inputs[chats[0] - BROKEN] = torch.nan
    net = DeltaNet(
        layer=shape.layers - 1,
        convolution=normal(channels * shape.taps) / 2,
        decay=-torch.exp(normal(shape.v_heads)),
        bias=normal(shape.v_heads),
        epsilon=EPSILON,
        tiled=tiled,
    )
    return DeltaSubject("delta_net", candidates(shape), shape, net, inputs.to(torch.bfloat16), chats)
