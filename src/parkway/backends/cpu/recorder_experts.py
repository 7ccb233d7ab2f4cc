"""The instructions of a mixture of experts. experts.h says what each does and what lies where."""

import ctypes as C
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from parkway.backends import Activation, Experts
from parkway.backends.cpu.arena import Value
from parkway.backends.cpu.library import FIXED, ROWS, Instruction, Segment, aligned
from parkway.backends.cpu.pack import Matrix
from parkway.backends.cpu.stack import Stack
from parkway.errors import Unsupported

if TYPE_CHECKING:
    from parkway.backends.cpu.recorder import Recorder

ACTIVATIONS: tuple[Activation, ...] = ("silu", "gelu", "clamped")
"""As activation.h counts them."""
_MOST_EXPERTS = 1024
_PADDING = 15
"""Most rows by which the tiles of int8 rows of an expert exceed its rows."""
_NUMBER_BYTES = 4


class Mixture(C.Structure):
    """experts.h has the twin."""

    _fields_ = [
        *[(name, C.c_int64) for name in ("count", "chosen", "of_all", "kind")],
        ("logits", C.c_void_p),
        ("logits_stride", C.c_int64),
        *[(name, C.c_void_p) for name in ("experts", "places", "weights", "first", "held", "used")],
        *[(name, C.c_void_p) for name in ("x", "sorted", "hidden", "results")],
        ("results_stride", C.c_int64),
        *[(name, C.c_void_p) for name in ("residual", "out")],
    ]


class Placed(Value):
    """Rows by place: one for each row and expert that it has chosen, and what fills up the tiles."""

    def __init__(self, width: int, x: Value, experts: Experts, *, floats: bool = True, quantised: bool = False) -> None:
        super().__init__(width, x.on_logit_rows)
        self.quantised = quantised
        self._floats = floats
        self._experts = experts

    def parts(self, rows: int) -> list[tuple[str, int]]:
        pairs = rows * self._experts.chosen
        parts = super().parts(pairs + _PADDING * min(self._experts.count, pairs))
        return parts if self._floats else parts[1:]


class Routes(Value):
    """Who goes where, as numbers of 32 bits."""

    def __init__(self, x: Value, experts: Experts) -> None:
        super().__init__(0, x.on_logit_rows)
        self._experts = experts

    def parts(self, rows: int) -> list[tuple[str, int]]:
        return [("f", sum(aligned(size) for _, size in self.tables(rows)))]

    def tables(self, rows: int) -> list[tuple[str, int]]:
        """Fields of `Mixture` with their bytes."""
        pairs, count = rows * self._experts.chosen * _NUMBER_BYTES, self._experts.count * _NUMBER_BYTES
        by_expert = [("first", count), ("held", count), ("used", count + _NUMBER_BYTES)]
        return [("experts", pairs), ("places", pairs), ("weights", pairs), *by_expert]


def experts_add(to: "Recorder", x: Value, logits: Value, experts: Experts, residual: Value) -> Value:
    """Routes rows, multiplies them expert by expert, and adds what each row's experts have made to the residual."""
    gate, up, down = (cast(Stack, stack) for stack in (experts.gate, experts.up, experts.down))
    _check(experts, gate, down)
    to.prepare(x, gate.first)
    to.prepare(x, up.first)
    as_int8 = [to.is_int8(stack.first) for stack in (gate, up)]
    routes, out = Routes(x, experts), Value(residual.width, x.on_logit_rows)
    sorted_rows = Placed(x.width, x, experts, floats=not all(as_int8), quantised=any(as_int8))
    hidden = Placed(up.first.stride, x, experts, quantised=to.is_int8(down.first))
    results = Placed(down.first.stride, x, experts)
    made = Mixture(experts.count, experts.chosen, experts.softmax == "all" and not experts.normalised)
    made.kind = ACTIVATIONS.index(experts.activation)
    to.kept += [made, experts]

    def place() -> None:
        rows = to.machine.max_logit_rows if x.on_logit_rows else to.machine.max_rows
        made.logits, made.logits_stride = logits.address, logits.width
        at = routes.address
        for name, size in routes.tables(rows):
            setattr(made, name, at)
            at += aligned(size)
        made.x, made.sorted, made.hidden = (C.addressof(each.rows) for each in (x, sorted_rows, hidden))
        made.results, made.results_stride = results.address, results.width
        made.residual, made.out = residual.address, out.address

    def record(name: str, counts: int, reads: list[Value], writes: list[Value], *stacks: Stack) -> None:
        to.record(reads, writes, lambda: _instruction(to, name, counts, made, place, x, stacks))

    record("route", ROWS, [logits], [routes])
    record("sort_rows", FIXED, [routes], [])
    record("spread", ROWS, [routes, x], [sorted_rows])
    record("experts_gated", FIXED, [routes, sorted_rows], [hidden], gate, up)
    if hidden.quantised:
        record("quantise_hidden", ROWS, [routes, hidden], [])
    record("experts_down", FIXED, [routes, hidden], [results], down)
    record("combine", ROWS, [routes, results, residual], [out])
    return out


def _instruction(
    to: "Recorder",
    name: str,
    counts: int,
    mixture: Mixture,
    place: Callable[[], None],
    x: Value,
    stacks: tuple[Stack, ...],
) -> Instruction:
    place()
    made = to.instruction(name, x, counts)
    made.items, made.p[0] = 1, C.addressof(mixture)
    for i, stack in enumerate(stacks):
        made.items = stack.count * stack.first.groups
        made.n[i], made.segment[i] = stack.expert_bytes, _segment(to, stack)
    return made


def _segment(to: "Recorder", stack: Stack) -> Segment:
    made = to.segment(stack.first, None, None)
    made.bias = None if stack.bias is None else stack.bias.ctypes.data
    return made


def _check(experts: Experts, gate: Stack, down: Stack) -> None:
    first: Matrix = gate.first
    if not experts.chosen <= experts.count <= _MOST_EXPERTS:
        raise Unsupported(f"{experts.chosen} of {experts.count} experts; the kernels know up to {_MOST_EXPERTS}")
    if down.first.columns != first.stride:
        raise Unsupported(f"experts of {first.rows} hidden values, down takes {down.first.columns}")
