"""The instructions of attention: turned heads, written pages, splits and their merge."""

import ctypes as C
from typing import TYPE_CHECKING

import numpy as np

from parkway.backends import Attention, Rope, place_of
from parkway.backends.cpu.arena import Value
from parkway.backends.cpu.library import (
    MERGES,
    PARTIAL_BYTES,
    ROWS,
    SPLIT_ROWS,
    SPLIT_TOKENS,
    TILES,
    Instruction,
    Layout,
    Memory,
)
from parkway.errors import Unsupported

if TYPE_CHECKING:
    from parkway.backends.cpu.recorder import Recorder

MAX_HEAD_DIM = 256


def rope_and_write(to: "Recorder", q: Value, k: Value, v: Value, how: Attention) -> Value:
    """Turns q in place."""
    rope, (layout, memory), norms = how.rope, _place(to, how.layer), how.norms
    to.kept.append(how)
    turns = _turned_by(to, rope) if rope else 0
    dims, neighbours = (rope.dims, int(rope.pairs == "neighbours")) if rope else (0, 0)

    def build() -> Instruction:
        made = to.instruction(f"rope_and_write_{to.machine.kv_type}", q, ROWS)
        made.n[:7] = [how.heads, dims, neighbours, 0, 0, q.width, k.width]
        made.p[:6] = [q.address, k.address, v.address, C.addressof(layout), memory.address, turns]
        if norms:
            made.p[6:8], made.f[0] = [norms.q.ctypes.data, norms.k.ctypes.data], norms.epsilon
        return made

    to.record([q, k, v], [], build)
    return q


def attention(to: "Recorder", q: Value, how: Attention) -> Value:
    """Two instructions: the splits, and their merge where they were separate."""
    machine = to.machine
    out = Value(how.heads * machine.kv.head_dim, q.on_logit_rows)
    (layout, memory), parts = _place(to, how.layer), _parts(to)
    splits = parts.size_bytes // (SPLIT_ROWS * how.heads * PARTIAL_BYTES)
    sinks = None if how.sinks is None else how.sinks.ctypes.data
    to.kept.append(how)

    def build(name: str, counts: int) -> Instruction:
        made = to.instruction(name, out, counts)
        made.n[:7] = [how.heads, splits, how.window, 0, 0, q.width, out.width]
        made.f[:2] = [how.scale, how.soft_cap]
        made.p[:6] = [q.address, out.address, parts.address, C.addressof(layout), memory.address, sinks]
        return made

    to.record([q], [out], lambda: build(f"attention_{machine.kv_type}", TILES))
    return to.record([q], [out], lambda: build("merge_splits", MERGES))


def _place(to: "Recorder", layer: int) -> tuple[Layout, Memory]:
    """Where a layer lies in its pages, and where these lie."""
    machine, rings = to.machine, to.machine.rings
    kv, size = machine.kv, machine.layer_bytes
    if kv.head_dim % 16 or kv.head_dim > MAX_HEAD_DIM:
        raise Unsupported(f"heads of {kv.head_dim} lanes; the kernels need a multiple of 16 up to {MAX_HEAD_DIM}")
    in_ring, number = place_of(layer, rings.shape if rings else None)
    ringed = len(rings.shape.layers) if rings else 0
    if in_ring and rings:
        made = Layout(kv.kv_heads, kv.head_dim, size * ringed, size, number, rings.tables.ctypes.data)
    else:
        made = Layout(kv.kv_heads, kv.head_dim, size * (kv.layers - ringed), size, number)
    to.kept.append(made)
    return made, rings.memory if in_ring and rings else machine.pool


def _turned_by(to: "Recorder", rope: Rope) -> int:
    """The address of what it turns each position by."""
    if id(rope) not in to.turns:
        to.turns[id(rope)] = np.ascontiguousarray(rope.turns(to.machine.max_positions))
    return to.turns[id(rope)].ctypes.data


def _parts(to: "Recorder") -> Memory:
    if to.split_parts is None:
        splits = -(-to.machine.max_positions // SPLIT_TOKENS)
        to.split_parts = Memory(SPLIT_ROWS * to.machine.heads * splits * PARTIAL_BYTES, "attention")
    return to.split_parts
