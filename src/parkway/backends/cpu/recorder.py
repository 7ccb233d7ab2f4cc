"""Records a model's forward pass once as a flat program of kernel calls. Knows shapes and addresses, never a number."""

import ctypes as C
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from parkway.backends import HeadNorms, KvShape, Rope
from parkway.backends.cpu.arena import Value, place
from parkway.backends.cpu.library import (
    FIXED,
    LOGIT_ROWS,
    MERGES,
    PARTIAL_BYTES,
    ROWS,
    SPLIT_ROWS,
    SPLIT_TOKENS,
    TILES,
    Instruction,
    Layout,
    Memory,
    Segment,
    kernel,
)
from parkway.backends.cpu.pack import Matrix
from parkway.backends.quant import QUANTISED
from parkway.errors import Unsupported
from parkway.plan.step import PAGE_TOKENS

MAX_HEAD_DIM = 256


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
    rope: Rope
    pool: Memory

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
    _turns: npt.NDArray[np.float32] | None = None
    _split_parts: Memory | None = None

    def embed(self, table: Matrix) -> Value:
        out = Value(table.columns)

        def build() -> Instruction:
            made = self._instruction(f"embed_{table.type}", out, ROWS)
            made.n[:2] = [out.width, table.group_bytes]
            made.p[:2] = [table.address, out.address]
            return made

        return self._record([], [out], build)

    def rms_norm(self, x: Value, weight: npt.NDArray[np.float32], epsilon: float) -> Value:
        out = Value(x.width, x.on_logit_rows)
        self.kept.append(weight)

        def build() -> Instruction:
            made = self._instruction("rms_norm", out, ROWS)
            made.n[0], made.f[0] = x.width, epsilon
            made.p[:3] = [x.address, weight.ctypes.data, C.addressof(out.rows)]
            return made

        out.quantised_by_producer = True
        return self._record([x], [out], build)

    def linear(self, x: Value, weights: tuple[Matrix, ...]) -> tuple[Value, ...]:
        outs = tuple(Value(weight.stride, x.on_logit_rows) for weight in weights)
        self._record_linear(x, list(zip(weights, outs, strict=True)), None)
        return outs

    def linear_add(self, x: Value, weight: Matrix, residual: Value) -> Value:
        out = Value(weight.stride, x.on_logit_rows)
        self._record_linear(x, [(weight, out)], residual)
        return out

    def gated(self, x: Value, gate: Matrix, up: Matrix) -> Value:
        out = Value(up.stride, x.on_logit_rows)
        self._prepare(x, gate)
        self._prepare(x, up)

        def build() -> Instruction:
            made = self._instruction("gated", out, FIXED)
            made.items, made.p[0] = up.groups, C.addressof(x.rows)
            made.segment[0], made.segment[1] = self._segment(gate, None, None), self._segment(up, out, None)
            return made

        return self._record([x], [out], build)

    def rope_and_write(self, q: Value, k: Value, v: Value, layer: int, norms: HeadNorms | None = None) -> Value:
        rope, layout = self.machine.rope, self._layout(layer)
        turns = self._rope_table()
        self.kept.append(norms)

        def build() -> Instruction:
            made = self._instruction(f"rope_and_write_{self.machine.kv_type}", q, ROWS)
            made.n[:7] = [self.machine.heads, rope.dims, int(rope.pairs == "neighbours"), 0, 0, q.width, k.width]
            made.p[:6] = [
                q.address,
                k.address,
                v.address,
                C.addressof(layout),
                self.machine.pool.address,
                turns.ctypes.data,
            ]
            if norms:
                made.p[6:8], made.f[0] = [norms.q.ctypes.data, norms.k.ctypes.data], norms.epsilon
            return made

        self._record([q, k, v], [], build)
        return q

    def attention(self, q: Value, layer: int) -> Value:
        machine = self.machine
        out, layout, parts = (
            Value(machine.heads * machine.kv.head_dim, q.on_logit_rows),
            self._layout(layer),
            self._parts(),
        )
        splits = parts.size_bytes // (SPLIT_ROWS * machine.heads * PARTIAL_BYTES)

        def build(name: str, counts: int) -> Instruction:
            made = self._instruction(name, out, counts)
            made.n[:7] = [machine.heads, splits, 0, 0, 0, q.width, out.width]
            made.f[0] = 1 / math.sqrt(machine.kv.head_dim)
            made.p[:5] = [q.address, out.address, parts.address, C.addressof(layout), machine.pool.address]
            return made

        self._record([q], [out], lambda: build(f"attention_{machine.kv_type}", TILES))
        return self._record([q], [out], lambda: build("merge_splits", MERGES))

    def take(self, x: Value) -> Value:
        out = Value(x.width, on_logit_rows=True)

        def build() -> Instruction:
            made = self._instruction("take", out, ROWS)
            made.n[0] = x.width
            made.p[:2] = [x.address, out.address]
            return made

        return self._record([x], [out], build)

    def logits(self, x: Value, head: Matrix) -> Value:
        self.hidden = x
        return self.linear(x, (head,))[0]

    def sample(self, logits: Value, vocabulary: int) -> None:
        """Chooses a token of each logit row, as the batch's samples say."""

        def build() -> Instruction:
            made = self._instruction("sample", logits, ROWS)
            made.n[:2] = [vocabulary, logits.width]
            made.p[0] = logits.address
            return made

        self._record([logits], [], build)

    def finish(self) -> tuple["C.Array[Instruction]", Memory]:
        """Gives every value its address and builds the instructions. Also returns the values' memory."""
        spans = [(step.reads, step.writes) for step in self.recorded]
        if self.hidden:
            spans.append(([self.hidden], []))
        memory = place(spans, self.machine.max_rows, self.machine.max_logit_rows)
        made = [step.build() for step in self.recorded]
        return (Instruction * len(made))(*made), memory

    def _record(self, reads: list[Value], writes: list[Value], build: Callable[[], Instruction]) -> Value:
        self.recorded.append(Recorded(reads, writes, build))
        return writes[0] if writes else reads[0]

    def _record_linear(self, x: Value, pairs: list[tuple[Matrix, Value]], residual: Value | None) -> None:
        for weight, _ in pairs:
            self._prepare(x, weight)

        def build() -> Instruction:
            made = self._instruction("linear", pairs[0][1], FIXED)
            made.items, made.p[0] = sum(weight.groups for weight, _ in pairs), C.addressof(x.rows)
            for i, (weight, out) in enumerate(pairs):
                made.segment[i] = self._segment(weight, out, residual)
            return made

        reads = [x] if residual is None else [x, residual]
        self._record(reads, [out for _, out in pairs], build)

    def _prepare(self, x: Value, weight: Matrix) -> None:
        """Has x quantised, once, if the weight is multiplied as integers."""
        if x.width != weight.columns:
            raise Unsupported(f"a matrix with {weight.columns} columns can't take rows of {x.width} values")
        if not self._is_int8(weight) or x.quantised:
            return
        x.quantised = True
        if x.quantised_by_producer:
            return

        def build() -> Instruction:
            made = self._instruction("quantise", x, ROWS)
            made.p[0] = C.addressof(x.rows)
            return made

        self._record([x], [], build)

    def _is_int8(self, weight: Matrix) -> bool:
        return self.machine.activations == "int8" and weight.type in QUANTISED

    def _instruction(self, name: str, out: Value, counts: int) -> Instruction:
        if counts == ROWS and out.on_logit_rows:
            counts = LOGIT_ROWS
        return Instruction(kernel=kernel(self.machine.isa, name), counts=counts, on_logit_rows=int(out.on_logit_rows))

    def _segment(self, weight: Matrix, out: Value | None, residual: Value | None) -> Segment:
        kind = "int8" if self._is_int8(weight) else "f32"
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

    def _layout(self, layer: int) -> Layout:
        kv = self.machine.kv
        if kv.head_dim % 16 or kv.head_dim > MAX_HEAD_DIM:
            raise Unsupported(f"heads of {kv.head_dim} lanes; the kernels need a multiple of 16 up to {MAX_HEAD_DIM}")
        size = self.machine.layer_bytes
        made = Layout(kv.kv_heads, kv.head_dim, size * kv.layers, size, layer)
        self.kept.append(made)
        return made

    def _rope_table(self) -> npt.NDArray[np.float32]:
        if self._turns is None:
            self._turns = np.ascontiguousarray(self.machine.rope.turns(self.machine.max_positions))
        return self._turns

    def _parts(self) -> Memory:
        """Room for the splits of the few rows whose splits may be separate; one for all layers."""
        if self._split_parts is None:
            splits = -(-self.machine.max_positions // SPLIT_TOKENS)
            self._split_parts = Memory(SPLIT_ROWS * self.machine.heads * splits * PARTIAL_BYTES, "attention")
        return self._split_parts
