"""Operations of the CPU backend run on chosen rows, and the same operations of the reference beside them."""

import ctypes as C
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType

from parkway.backends import Attention, KvShape, Rope, StateShape
from parkway.backends.cpu.arena import Value
from parkway.backends.cpu.library import Batch, Memory, Pool, Sample, best_isa
from parkway.backends.cpu.pack import Matrix, pack_matrix
from parkway.backends.cpu.program import Program
from parkway.backends.cpu.recorder import Machine, Recorder, layer_bytes
from parkway.backends.cpu.recorder_states import slot_bytes
from parkway.backends.cpu.stack import Stack, pack_stack
from parkway.backends.quant import decode
from parkway.backends.reference import Floats, ReferenceOps, ReferencePack, ReferenceStep
from parkway.weights.checkpoint import RawTensor
from tests.quantised import quantised

Float32s = npt.NDArray[np.float32]
ORDER = ("portable", "avx2", "avx512", "amx")
ISAS = ORDER[: ORDER.index(best_isa()) + 1]
PAGES = 24
KV = KvShape(layers=2, kv_heads=2, head_dim=32)
ROPE = Rope(base=10000.0, dims=32, pairs="neighbours")
PLAIN = Attention(layer=0, heads=4, scale=32**-0.5, rope=ROPE)
"""What a layer of `KV` does if nothing else is said."""


def raw_tensor(name: str, kind: str, values: Float32s) -> RawTensor:
    """`values` [rows, columns] as a file of this type has them."""
    return RawTensor(name, values.shape, GGMLQuantizationType[kind], quantised(values, kind))


class CpuPack:
    """Takes single tensors in for the kernels."""

    def matrix(self, tensor: RawTensor, bias: RawTensor | None = None) -> Matrix:
        added = None if bias is None else self.vector(bias)
        return pack_matrix(tensor.name, tensor.type.name, tensor.raw, tensor.shape[-1], bias=added)

    def vector(self, tensor: RawTensor) -> Float32s:
        return decode(tensor.name, tensor.type.name, tensor.raw).reshape(-1).copy()

    def stack(self, experts: Sequence[RawTensor], biases: Sequence[RawTensor] | None = None) -> Stack:
        first, added = experts[0], None if biases is None else [self.vector(bias) for bias in biases]
        return pack_stack(first.name, first.type.name, [each.raw for each in experts], first.shape[-1], biases=added)

    def together(self, *matrices: Matrix) -> tuple[Matrix, ...]:
        return matrices


class Drawn:
    """Random weights, the same for each pack that takes them in: of the CPU or of the reference."""

    def __init__(self, pack: CpuPack | ReferencePack, seed: int = 0) -> None:
        self._pack = pack
        self._random = np.random.default_rng(seed)

    def matrix(self, kind: str, rows: int, columns: int, *, biased: bool = False) -> Any:
        values = self._random.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(columns))
        bias = raw_tensor("drawn", "F32", self._random.standard_normal((1, rows), np.float32)) if biased else None
        return self._pack.matrix(raw_tensor("drawn", kind, values), bias)

    def stack(self, kind: str, count: int, rows: int, columns: int, *, biased: bool = False) -> Any:
        values = self._random.standard_normal((count, rows, columns), np.float32) / np.float32(np.sqrt(columns))
        biases = self._random.standard_normal((count, 1, rows), np.float32)
        added = [raw_tensor("drawn", "F32", each) for each in biases] if biased else None
        return self._pack.stack([raw_tensor("drawn", kind, each) for each in values], added)

    def together(self, *matrices: Any) -> Any:
        return self._pack.together(*matrices)

    def table(self, rows: int, columns: int) -> Any:
        """Rows of activations: some large, some small, some with one value that towers over its neighbours."""
        values = self._random.standard_normal((rows, columns), np.float32)
        values *= np.exp2(self._random.integers(-6, 6, (rows, 1), np.int32), dtype=np.float32)
        values[::5, 3] *= 50
        return self._pack.matrix(raw_tensor("drawn", "F32", values))

    def table_of(self, values: Float32s) -> Any:
        return self._pack.matrix(raw_tensor("given", "F32", values))

    def calm_table(self, rows: int, columns: int) -> Any:
        return self._pack.matrix(raw_tensor("drawn", "F32", self._random.standard_normal((rows, columns), np.float32)))

    def vector(self, width: int) -> Any:
        values = np.float32(1) + self._random.standard_normal((1, width), np.float32) / np.float32(4)
        return self._pack.vector(raw_tensor("drawn", "F32", values))


Record = Callable[[Any, Drawn], Sequence[Any]]
"""Calls operations of a table on drawn weights; returns what the last of them made."""


class Rig:
    """A recorded program with a pool of its own. What it computed last can be looked at."""

    def __init__(
        self,
        record: Callable[[Recorder], Sequence[Value]],
        *,
        isa: str = ISAS[-1],
        activations: str = "f32",
        heads: int = 4,
        kv: KvShape = KV,
        threads: int = 1,
        max_rows: int = 320,
        states: StateShape | None = None,
    ) -> None:
        self.pool = Memory(PAGES * layer_bytes(kv, activations) * kv.layers, "pages")
        self._slots: dict[tuple[int, ...], int] = {}
        memory = Memory(len(TABLES) * slot_bytes(states), "states") if states else None
        machine = Machine(isa, activations, max_rows, max_rows, PAGES * 64, heads, kv, self.pool, states, memory)
        recorder = Recorder(machine)
        self._made = record(recorder)
        self._program = Program(recorder, self._made[0], Pool(threads))

    def run(self, step: ReferenceStep, samples: "C.Array[Sample] | None" = None) -> list[Float32s]:
        """Computes a step; returns a copy of each result, float32 [rows, width]. Samplers fill `samples` in."""
        chats = list(dict.fromkeys(map(tuple, step.tables)))
        starts = np.cumsum([0, *map(len, chats)])
        arrays = [
            np.array(values, np.int32)
            for values in (
                step.tokens,
                step.positions,
                [starts[chats.index(tuple(table))] for table in step.tables],
                [page for chat in chats for page in chat],
                step.logit_rows,
                [self._slots.setdefault(tuple(table), len(self._slots)) for table in step.tables],
            )
        ]
        *pointers, slots = (array.ctypes.data for array in arrays)
        chosen = C.addressof(samples) if samples else None
        self._program.run(Batch(len(step.tokens), len(step.logit_rows), *pointers, chosen, slots))
        return [self._copied(value, step) for value in self._made]

    def _copied(self, value: Value, step: ReferenceStep) -> Float32s:
        rows = len(step.logit_rows if value.on_logit_rows else step.tokens)
        memory = (C.c_float * (rows * value.width)).from_address(value.address)
        return np.ctypeslib.as_array(memory).reshape(rows, value.width).copy()


def cpu_rig(record: Record, **machine: Any) -> Rig:
    """The rig of a case; `machine` as Rig has it."""
    return Rig(lambda recorder: record(recorder, Drawn(CpuPack())), **machine)


class Reference:
    """The same case in float64."""

    def __init__(self, record: Record, *, activations: str, heads: int = 4, kv: KvShape = KV) -> None:
        assert heads % kv.kv_heads == 0
        self._record = record
        self._ops = ReferenceOps(kv, activations)

    def run(self, step: ReferenceStep) -> list[Floats]:
        self._ops.step = step
        return list(self._record(self._ops, Drawn(ReferencePack())))


def same_bits(a: Float32s, b: Float32s) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def only(step: ReferenceStep, rows: Sequence[int]) -> ReferenceStep:
    """Some rows of a step, in the order given; each row's logits are wanted."""
    return ReferenceStep(
        [step.tokens[r] for r in rows],
        [step.positions[r] for r in rows],
        [step.tables[r] for r in rows],
        range(len(rows)),
    )


TABLES = ((7, 2, 11, 4, 9, 22), (3, 8, 1, 6, 15, 0), (5, 10, 12, 13, 14, 16))
"""Page tables of three chats of up to 384 tokens."""


def chats(*lengths: int) -> ReferenceStep:
    """The whole prefill of up to three chats as one step, tokens counted through."""
    places = [(chat, position) for chat, length in enumerate(lengths) for position in range(length)]
    return ReferenceStep(
        range(len(places)),
        [position for _, position in places],
        [TABLES[chat] for chat, _ in places],
        range(len(places)),
    )
