"""The instructions of gated delta nets, and how much each slot keeps for them. delta.h says what lies where."""

import ctypes as C
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from parkway.backends import DeltaNet, StateShape
from parkway.backends.cpu.arena import Value
from parkway.backends.cpu.library import ROWS, RUNS, Instruction, aligned
from parkway.errors import Unsupported

if TYPE_CHECKING:
    from parkway.backends.cpu.recorder import Recorder

BLOCK = 16
"""Rows between two anchors."""
_LANES = 16
_MOST_TAPS = 16


class States(C.Structure):
    """delta.h has the twin."""

    _fields_ = [
        *[(name, C.c_int64) for name in ("k_heads", "v_heads", "k_dim", "v_dim", "taps", "tiled")],
        *[(name, C.c_int64) for name in ("slot_floats", "layer_floats", "layer")],
        ("memory", C.c_void_p),
    ]


def channels(shape: StateShape) -> int:
    """Inputs of the convolution in one row: those of q, k and v."""
    return 2 * shape.k_heads * shape.k_dim + shape.v_heads * shape.v_dim


def layer_floats(shape: StateShape) -> int:
    """Of what one slot keeps of one layer: matrices, the block's keys, u and log-decays, inputs of the convolution."""
    matrices = shape.v_heads * shape.k_dim * shape.v_dim
    block = BLOCK * (shape.k_heads * shape.k_dim + shape.v_heads * shape.v_dim + shape.v_heads)
    return aligned(matrices + block + (shape.taps - 1) * channels(shape), _LANES)


def slot_bytes(shape: StateShape) -> int:
    """Of what one chat keeps, however long it is."""
    return shape.layers * layer_floats(shape) * C.sizeof(C.c_float)


def delta_net(to: "Recorder", q: Value, k: Value, v: Value, a: Value, b: Value, how: DeltaNet) -> Value:
    """Convolution and norms of all rows, what the next step's convolution needs, then each chat's rows in order."""
    shape, memory = to.machine.states, to.machine.state_memory
    assert shape, "a program for a model without states"
    assert memory, "a program without memory for states"
    _check(shape)
    states = States(*_counts(shape), how.tiled, slot_bytes(shape) // 4, layer_floats(shape), how.layer, memory.address)
    taps = np.ascontiguousarray(how.convolution.reshape(channels(shape), shape.taps).T)
    to.kept += [states, taps, how]
    mixed, out = Value(channels(shape)), Value(shape.v_heads * shape.v_dim)

    def inputs(name: str, counts: int) -> Instruction:
        made = to.instruction(name, mixed, counts)
        made.items, made.f[0] = 1, how.epsilon
        made.n[:3] = [q.width, k.width, v.width]
        made.p[:6] = [q.address, k.address, v.address, mixed.address, C.addressof(states), taps.ctypes.data]
        return made

    def rule() -> Instruction:
        made = to.instruction("delta_net", out, RUNS)
        made.items, made.n[:3] = shape.k_heads, [a.width, b.width, out.width]
        made.p[:5] = [mixed.address, a.address, b.address, out.address, C.addressof(states)]
        made.p[5:7] = [_address(how.decay), _address(how.bias)]
        return made

    to.record([q, k, v], [mixed], lambda: inputs("delta_inputs", ROWS))
    to.record([q, k, v], [], lambda: inputs("keep_inputs", RUNS))
    return to.record([mixed, a, b], [out], rule)


def gated_norm(to: "Recorder", x: Value, gate: Value, weight: npt.NDArray[np.float32], epsilon: float) -> Value:
    """Also quantises what it makes, where a matrix wants that."""
    out = Value(x.width)
    out.quantised_by_producer = True
    to.kept.append(weight)

    def build() -> Instruction:
        made = to.instruction("gated_norm", out, ROWS)
        made.n[:4], made.f[0] = [x.width, gate.width, x.width, len(weight)], epsilon
        made.p[:4] = [x.address, gate.address, _address(weight), C.addressof(out.rows)]
        return made

    return to.record([x, gate], [out], build)


def _counts(shape: StateShape) -> tuple[int, ...]:
    return shape.k_heads, shape.v_heads, shape.k_dim, shape.v_dim, shape.taps


def _address(values: npt.NDArray[np.float32]) -> int:
    return values.ctypes.data


def _check(shape: StateShape) -> None:
    if shape.k_dim % _LANES or shape.v_dim % _LANES:
        raise Unsupported(f"delta nets of {shape.k_dim} x {shape.v_dim}; the kernels need multiples of {_LANES}")
    if not 2 <= shape.taps <= _MOST_TAPS:
        raise Unsupported(f"a convolution over {shape.taps} tokens; the kernels need 2 to {_MOST_TAPS}")
