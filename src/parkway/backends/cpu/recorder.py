"""Records a model's forward pass once as a flat program of kernel calls. Knows shapes and addresses, never a number."""

import ctypes as C
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from parkway.backends import Activation, Attention, DeltaNet, Experts, KvShape, Rings, StateShape
from parkway.backends.cpu import recorder_attention, recorder_experts, recorder_states
from parkway.backends.cpu.arena import Value, place
from parkway.backends.cpu.library import FIXED, LOGIT_ROWS, ROWS, Instruction, Memory, Segment, kernel
from parkway.backends.cpu.pack import Matrix
from parkway.backends.cpu.recorder_experts import ACTIVATIONS
from parkway.backends.quant import QUANTISED
from parkway.errors import Unsupported
from parkway.plan.step import PAGE_TOKENS

MAX_SEGMENTS = 3
"""Matrices of one instruction."""


@dataclass(frozen=True, slots=True)
class RingMemory:
    """`tables`: int32 [slots, pages], cut as a step's page tables are."""

    shape: Rings
    memory: Memory
    tables: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Machine:
    """What a program is recorded for. Rows and positions are the most that a step may have."""

    isa: str
    activations: str
    max_rows: int
    max_logit_rows: int
    max_positions: int
    heads: int
    kv: KvShape
    pool: Memory
    states: StateShape | None = None
    state_memory: Memory | None = None
    """Of all slots, where layers keep states."""
    rings: RingMemory | None = None
    """Of all slots, where layers that see a window have pages of their own."""

    @property
    def kv_type(self) -> str:
        return "f32" if self.activations == "f32" else "f16"

    @property
    def layer_bytes(self) -> int:
        return layer_bytes(self.kv, self.activations)


def layer_bytes(kv: KvShape, activations: str) -> int:
    """Bytes of one layer in a page: keys and values, fp16 unless activations are float32 throughout."""
    return 2 * kv.kv_heads * kv.head_dim * PAGE_TOKENS * (4 if activations == "f32" else 2)


@dataclass(slots=True)
class Recorded:
    """One instruction before its values have addresses."""

    reads: list[Value]
    writes: list[Value]
    build: Callable[[], Instruction]


@dataclass(slots=True)
class Recorder:
    """The CPU's `backends.Operations`: every call appends an instruction and returns a Value.

    `hidden`: what logits are made of, once there are some. It is not overwritten before the next step.
    """

    machine: Machine
    recorded: list[Recorded] = field(default_factory=list)
    kept: list[object] = field(default_factory=list)
    hidden: Value | None = None
    turns: dict[int, npt.NDArray[np.float32]] = field(default_factory=dict)
    """What each Rope turns positions by, by its id: few, and shared by many layers."""
    split_parts: Memory | None = None
    """Room for the splits of the few rows whose splits may be separate; one for all layers."""

    def embed(self, table: Matrix, scale: float = 1.0) -> Value:
        out = Value(table.columns)

        def build() -> Instruction:
            made = self.instruction(f"embed_{table.type}", out, ROWS)
            made.n[:2] = [out.width, table.group_bytes]
            made.p[:2], made.f[0] = [table.address, out.address], scale
            return made

        return self.record([], [out], build)

    def rms_norm(self, x: Value, weight: npt.NDArray[np.float32], epsilon: float) -> Value:
        out = Value(x.width, x.on_logit_rows)
        self.kept.append(weight)

        def build() -> Instruction:
            made = self.instruction("rms_norm", out, ROWS)
            made.n[0], made.f[0] = x.width, epsilon
            made.p[:3] = [x.address, weight.ctypes.data, C.addressof(out.rows)]
            return made

        out.quantised_by_producer = True
        return self.record([x], [out], build)

    def norm_add(self, x: Value, weight: npt.NDArray[np.float32], epsilon: float, residual: Value) -> Value:
        out = Value(x.width, x.on_logit_rows)
        self.kept.append(weight)

        def build() -> Instruction:
            made = self.instruction("norm_add", out, ROWS)
            made.n[0], made.f[0] = x.width, epsilon
            made.p[:4] = [x.address, weight.ctypes.data, out.address, residual.address]
            return made

        return self.record([x, residual], [out], build)

    def linear(self, x: Value, weights: tuple[Matrix, ...]) -> tuple[Value, ...]:
        outs = tuple(Value(weight.stride, x.on_logit_rows) for weight in weights)
        pairs = list(zip(weights, outs, strict=True))
        for first in range(0, len(pairs), MAX_SEGMENTS):
            self._record_linear(x, pairs[first : first + MAX_SEGMENTS], None)
        return outs

    def linear_add(self, x: Value, weight: Matrix, residual: Value) -> Value:
        out = Value(weight.stride, x.on_logit_rows)
        self._record_linear(x, [(weight, out)], residual)
        return out

    def gated(self, x: Value, gate: Matrix, up: Matrix, activation: Activation = "silu") -> Value:
        out = Value(up.stride, x.on_logit_rows)
        self.prepare(x, gate)
        self.prepare(x, up)

        def build() -> Instruction:
            made = self.instruction("gated", out, FIXED)
            made.items, made.p[0], made.n[0] = up.groups, C.addressof(x.rows), ACTIVATIONS.index(activation)
            made.segment[0], made.segment[1] = self.segment(gate, None, None), self.segment(up, out, None)
            return made

        return self.record([x], [out], build)

    def rope_and_write(self, q: Value, k: Value, v: Value, how: Attention) -> Value:
        return recorder_attention.rope_and_write(self, q, k, v, how)

    def attention(self, q: Value, how: Attention) -> Value:
        return recorder_attention.attention(self, q, how)

    def sigmoid_gate(self, x: Value, gate: Value) -> Value:
        return self._by_value("sigmoid_gate", x, gate)

    def add(self, x: Value, residual: Value) -> Value:
        return self._by_value("add", x, residual)

    def delta_net(self, q: Value, k: Value, v: Value, a: Value, b: Value, how: DeltaNet) -> Value:
        return recorder_states.delta_net(self, q, k, v, a, b, how)

    def gated_norm(self, x: Value, gate: Value, weight: npt.NDArray[np.float32], epsilon: float) -> Value:
        return recorder_states.gated_norm(self, x, gate, weight, epsilon)

    def routed(self, x: Value, weight: npt.NDArray[np.float32], epsilon: float, router: Matrix) -> tuple[Value, Value]:
        normed = self.rms_norm(x, weight, epsilon)
        return normed, self.linear(normed, (router,))[0]

    def experts_add(self, x: Value, scores: Value, experts: Experts, residual: Value) -> Value:
        return recorder_experts.experts_add(self, x, scores, experts, residual)

    def take(self, x: Value) -> Value:
        out = Value(x.width, on_logit_rows=True)

        def build() -> Instruction:
            made = self.instruction("take", out, ROWS)
            made.n[0] = x.width
            made.p[:2] = [x.address, out.address]
            return made

        return self.record([x], [out], build)

    def logits(self, x: Value, head: Matrix, soft_cap: float = 0.0) -> Value:
        self.hidden = x
        made = self.linear(x, (head,))[0]
        return self._capped(made, soft_cap) if soft_cap else made

    def sample(self, logits: Value, vocabulary: int) -> None:
        """Chooses a token of each logit row, as the batch's samples say."""

        def build() -> Instruction:
            made = self.instruction("sample", logits, ROWS)
            made.n[:2] = [vocabulary, logits.width]
            made.p[0] = logits.address
            return made

        self.record([logits], [], build)

    @property
    def table_bytes(self) -> int:
        """What positions turn by, and room for the splits of attention."""
        parts = self.split_parts.size_bytes if self.split_parts else 0
        return parts + sum(turns.nbytes for turns in self.turns.values())

    def finish(self) -> tuple["C.Array[Instruction]", Memory]:
        """Gives every value its address and builds the instructions. Also returns the values' memory."""
        spans = [(step.reads, step.writes) for step in self.recorded]
        if self.hidden:
            spans.append(([self.hidden], []))
        memory = place(spans, self.machine.max_rows, self.machine.max_logit_rows)
        made = [step.build() for step in self.recorded]
        return (Instruction * len(made))(*made), memory

    def _by_value(self, name: str, x: Value, other: Value) -> Value:
        """An instruction that makes each value of two, or of one and its row's only other."""
        out = Value(x.width, x.on_logit_rows)

        def build() -> Instruction:
            made = self.instruction(name, out, ROWS)
            made.n[:3] = [x.width, other.width, int(other.width == x.width)]
            made.p[:3] = [x.address, other.address, out.address]
            return made

        return self.record([x, other], [out], build)

    def _capped(self, logits: Value, cap: float) -> Value:
        def build() -> Instruction:
            made = self.instruction("soft_cap", logits, ROWS)
            made.n[0], made.p[0], made.f[0] = logits.width, logits.address, cap
            return made

        return self.record([logits], [], build)

    def record(self, reads: list[Value], writes: list[Value], build: Callable[[], Instruction]) -> Value:
        """Appends an instruction; returns what it writes first, or reads first if it writes nothing."""
        self.recorded.append(Recorded(reads, writes, build))
        return writes[0] if writes else reads[0]

    def _record_linear(self, x: Value, pairs: list[tuple[Matrix, Value]], residual: Value | None) -> None:
        for weight, _ in pairs:
            self.prepare(x, weight)

        def build() -> Instruction:
            made = self.instruction("linear", pairs[0][1], FIXED)
            made.items, made.p[0] = sum(weight.groups for weight, _ in pairs), C.addressof(x.rows)
            for i, (weight, out) in enumerate(pairs):
                made.segment[i] = self.segment(weight, out, residual)
            return made

        reads = [x] if residual is None else [x, residual]
        self.record(reads, [out for _, out in pairs], build)

    def prepare(self, x: Value, weight: Matrix) -> None:
        """Has x quantised, once, if the weight is multiplied as integers."""
        if x.width != weight.columns:
            raise Unsupported(f"a matrix with {weight.columns} columns can't take rows of {x.width} values")
        if not self.is_int8(weight) or x.quantised:
            return
        x.quantised = True
        if x.quantised_by_producer:
            return

        def build() -> Instruction:
            made = self.instruction("quantise", x, ROWS)
            made.p[0] = C.addressof(x.rows)
            return made

        self.record([x], [], build)

    def is_int8(self, weight: Matrix) -> bool:
        return self.machine.activations == "int8" and weight.type in QUANTISED

    def instruction(self, name: str, out: Value, counts: int) -> Instruction:
        """An instruction on `out`'s rows, its numbers and places still to be filled in."""
        if counts == ROWS and out.on_logit_rows:
            counts = LOGIT_ROWS
        return Instruction(kernel=kernel(self.machine.isa, name), counts=counts, on_logit_rows=int(out.on_logit_rows))

    def segment(self, weight: Matrix, out: Value | None, residual: Value | None) -> Segment:
        """A matrix as an instruction has it."""
        kind = "int8" if self.is_int8(weight) else "f32"
        return Segment(
            kernel=kernel(self.machine.isa, f"linear_{kind}_{weight.type}"),
            weights=weight.address,
            groups=weight.groups,
            group_bytes=weight.group_bytes,
            out=out.address if out else None,
            out_stride=out.width if out else 0,
            bias=weight.bias.ctypes.data if weight.bias is not None else None,
            residual=residual.address if residual else None,
        )
