"""Delta nets of the CPU backend run on chosen rows of chosen slots, and the reference beside them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from parkway.backends import DeltaNet, KvShape, StateShape
from parkway.backends.cpu.library import Batch, Memory, Pool
from parkway.backends.cpu.program import Program
from parkway.backends.cpu.recorder import Machine, Recorder
from parkway.backends.cpu.recorder_states import channels, slot_bytes
from parkway.backends.reference_states import States, delta_net, gated_norm
from tests.backends.rig import ISAS, CpuPack, raw_tensor

Float32s = npt.NDArray[np.float32]
SHAPE = StateShape(layers=2, k_heads=2, v_heads=4, k_dim=32, v_dim=48, taps=4)
SLOTS, LENGTH, EPSILON = 4, 150, 1e-6


class Row(NamedTuple):
    """A token of one of the chats that were drawn."""

    chat: int
    position: int


class Weights:
    """Of one layer; q, k, v, a, b, gate of `SLOTS` chats of `LENGTH` tokens, at chat * LENGTH + position."""

    def __init__(self, shape: StateShape, *, layer: int = 1, tiled: bool = False) -> None:
        random = np.random.default_rng(7)

        def normal(*size: int) -> Float32s:
            return random.standard_normal(size, np.float32)

        self.shape = shape
        decay = -np.exp(normal(shape.v_heads))
        taps = normal(channels(shape) * shape.taps) / np.float32(2)
        self.net = DeltaNet(layer, taps, decay, normal(shape.v_heads), EPSILON, tiled)
        self.norm = np.float32(1) + normal(shape.v_dim) / np.float32(4)
        k_width, v_width = shape.k_heads * shape.k_dim, shape.v_heads * shape.v_dim
        widths = (k_width, k_width, v_width, 32, 32, v_width)  # a and b with lanes that are no heads
        self.inputs = [normal(SLOTS * LENGTH, width) for width in widths]
        self.inputs[0][::7] *= 50
        self.inputs[2][3::11] *= np.float32(1e-3)

    def at(self, row: Row) -> int:
        return row.chat * LENGTH + row.position


class StateRig:
    """A recorded program with slots of its own, whose memory nobody has written holds `garbage`. `slots[c]` is the slot
    of chat c."""

    def __init__(
        self,
        weights: Weights,
        *,
        isa: str = ISAS[-1],
        threads: int = 1,
        garbage: int = 0xFF,
        slots: Sequence[int] = (),
        memory: Memory | None = None,
    ) -> None:
        self.weights, self.slots = weights, slots or range(SLOTS)
        self.memory = memory or Memory(SLOTS * slot_bytes(weights.shape), "states")
        if memory is None:
            self.memory.array()[:] = garbage
        machine = Machine(
            isa=isa,
            activations="f32",
            max_rows=SLOTS * LENGTH,
            max_logit_rows=1,
            max_positions=64,
            **_attention(),
            pool=Memory(1, "no pages"),
            states=weights.shape,
            state_memory=self.memory,
        )
        recorder = Recorder(machine)
        pack = CpuPack()
        tables = [pack.matrix(raw_tensor("drawn", "F32", each)) for each in weights.inputs]
        q, k, v, a, b, gate = (recorder.embed(table) for table in tables)
        self._net = recorder.delta_net(q, k, v, a, b, weights.net)
        self._normed = recorder.gated_norm(self._net, gate, weights.norm, EPSILON)
        self._program = Program(recorder, self._normed, Pool(threads))

    def run(self, rows: Sequence[Row]) -> Float32s:
        """What the rows of one step make of the net and of its norm, one beside the other."""
        numbers = [
            np.array(values, np.int32)
            for values in (
                [self.weights.at(row) for row in rows],
                [row.position for row in rows],
                [self.slots[row.chat] for row in rows],
            )
        ]
        tokens, positions, slots = (each.ctypes.data for each in numbers)
        self._program.run(Batch(len(rows), 0, tokens, positions, slots, None, None, None, slots))
        return np.concatenate([self._program.rows(each, len(rows)) for each in (self._net, self._normed)], axis=1)


def _attention() -> dict[str, Any]:
    """What a machine wants to know about heads that this program has not."""
    return {"heads": 1, "kv": KvShape(1, 1, 16)}


class ReferenceRig:
    """The same in float64, a token at a time."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._states: States = {}

    def run(self, rows: Sequence[Row]) -> npt.NDArray[np.float64]:
        shape = self._weights.shape
        at = [self._weights.at(row) for row in rows]
        q, k, v, a, b, gate = (each[at].astype(np.float64) for each in self._weights.inputs)
        made = delta_net(
            self._states, shape, self._weights.net, rows, q, k, v, a[:, : shape.v_heads], b[:, : shape.v_heads]
        )
        return np.concatenate([made, gated_norm(made, gate, self._weights.norm.astype(np.float64), EPSILON)], axis=1)


def whole(*lengths: int) -> list[Row]:
    """All rows of chats of these lengths, one chat after the other."""
    return [Row(chat, position) for chat, length in enumerate(lengths) for position in range(length)]


def cut(rows: Sequence[Row], *sizes: int) -> list[list[Row]]:
    """Rows of one chat in steps of these sizes, in turns."""
    steps: list[list[Row]] = []
    at = 0
    while at < len(rows):
        steps.append(list(rows[at : at + sizes[len(steps) % len(sizes)]]))
        at += len(steps[-1])
    return steps
