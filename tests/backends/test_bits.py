"""The exactness contract, operation by operation: a row's bits depend on the row, and on its chat's earlier tokens."""

import ctypes as C
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parkway.backends import KvShape
from parkway.backends.cpu import library, program
from parkway.backends.cpu.library import Rows
from parkway.backends.reference import ReferenceStep
from tests.backends.cases import CASES, PAGED_CASES, ROW_CASES, Case
from tests.backends.rig import (
    ISAS,
    PLAIN,
    CpuPack,
    Drawn,
    Float32s,
    Rig,
    chats,
    cpu_rig,
    only,
    raw_tensor,
    same_bits,
)

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_activation = pytest.mark.parametrize("activations", ["int8", "f32"])
ON_PAGES = chats(141, 64, 20)


def same(a: list[Float32s], b: list[Float32s]) -> bool:
    return all(same_bits(one, other) for one, other in zip(a, b, strict=True))


def rows_of(made: list[Float32s], rows: list[int]) -> list[Float32s]:
    return [values[rows] for values in made]


def assert_alone_equals_crowd(rig: Rig, crowd: ReferenceStep) -> None:
    made = rig.run(crowd)
    for row in range(len(crowd.tokens)):
        assert same(rig.run(only(crowd, [row])), rows_of(made, [row])), f"row {row} of {len(crowd.tokens)}"


@every_activation
@every_case
def test_a_row_alone_equals_the_row_in_a_crowd_of_any_size(case: Case, activations: str) -> None:
    rig = cpu_rig(case.record, activations=activations, **case.machine)
    for rows in range(1, 21):
        assert_alone_equals_crowd(rig, chats(rows - rows // 3, rows // 3))


@every_activation
@every_case
@pytest.mark.parametrize("isa", ISAS[:-1])
def test_every_instruction_set_gives_the_same_bits(case: Case, activations: str, isa: str) -> None:
    step = only(ON_PAGES, [*range(0, 225, 8 if isa == "portable" else 1)]) if case in ROW_CASES.values() else ON_PAGES
    best, other = (cpu_rig(case.record, isa=each, activations=activations, **case.machine) for each in (ISAS[-1], isa))
    assert same(best.run(step), other.run(step))


@every_activation
@every_case
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(case: Case, activations: str, threads: int) -> None:
    one = cpu_rig(case.record, activations=activations, **case.machine)
    more = cpu_rig(case.record, activations=activations, threads=threads, **case.machine)
    assert same(one.run(ON_PAGES), more.run(ON_PAGES))
    for rows in ([140], [130, 204], [129, 3, 140, 224]):
        assert same(one.run(only(ON_PAGES, rows)), more.run(only(ON_PAGES, rows)))


@every_activation
@pytest.mark.parametrize("case", PAGED_CASES.values(), ids=PAGED_CASES.keys())
def test_the_height_of_attention_tiles_changes_no_bit(
    case: Case, activations: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for most in (1, 2, 6, 40):
        monkeypatch.setattr(program, "MAX_QUERIES", most)
        made.append(cpu_rig(case.record, activations=activations, **case.machine).run(ON_PAGES))
    assert all(same(made[0], other) for other in made[1:])


@every_activation
@pytest.mark.parametrize("case", PAGED_CASES.values(), ids=PAGED_CASES.keys())
def test_separate_splits_equal_splits_one_after_the_other(case: Case, activations: str) -> None:
    step = chats(300)
    serial = cpu_rig(case.record, activations=activations, **case.machine)
    separate = cpu_rig(case.record, activations=activations, threads=3, **case.machine)
    whole = serial.run(step)
    separate.run(step)
    for first in range(118, 299, 9):
        for rows in (1, 2, 3, 4, 5):
            some = [*range(first, min(first + rows, 300))]
            assert same(separate.run(only(step, some)), rows_of(whole, some))


@pytest.mark.parametrize("garbage", [0xFF, 0x7C, 0xFC])
@every_activation
@pytest.mark.parametrize("case", PAGED_CASES.values(), ids=PAGED_CASES.keys())
def test_memory_that_nobody_wrote_changes_no_bit(case: Case, activations: str, garbage: int) -> None:
    clean = cpu_rig(case.record, activations=activations, **case.machine)
    dirty = cpu_rig(case.record, activations=activations, **case.machine)
    dirty.pool.array()[:] = garbage  # bytes of NaN in fp16 and fp32; of very large values; of both
    assert same(clean.run(ON_PAGES), dirty.run(ON_PAGES))
    assert same(clean.run(only(ON_PAGES, [140])), dirty.run(only(ON_PAGES, [140])))


def test_a_planted_kernel_whose_order_depends_on_the_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone a row is summed from the first column, in a crowd from the last: the promise broken in the least way."""
    case = ROW_CASES["linear F32"]
    with_planted_linear(monkeypatch, lambda rows: 1)
    assert_alone_equals_crowd(cpu_rig(case.record), chats(9))
    with_planted_linear(monkeypatch, lambda rows: 1 if rows == 1 else -1)
    with pytest.raises(AssertionError, match="of 9"):
        assert_alone_equals_crowd(cpu_rig(case.record), chats(9))


GROUP_KERNEL = C.CFUNCTYPE(None, C.POINTER(Rows), C.c_int64, C.c_void_p, C.c_void_p, C.c_int64)
_planted: list[Any] = []


def with_planted_linear(monkeypatch: pytest.MonkeyPatch, direction: Callable[[int], int]) -> None:
    """Puts a linear kernel for F32 in place that walks columns up (1) or down (-1), as `direction` of the rows says."""

    def group(x: Any, rows: int, weights: int, out: int, stride: int) -> None:
        k = x.contents.k
        walked = slice(None, None, direction(rows))
        matrix = floats(weights, k * 16).reshape(k, 16)[walked]
        for row, values in enumerate(floats(x.contents.f, rows * k).reshape(rows, k)[:, walked]):
            sums = np.add.accumulate(values[:, None] * matrix, axis=0)[-1]
            floats(out + 4 * stride * row, 16)[:] = sums

    _planted.append(GROUP_KERNEL(group))
    address = C.cast(_planted[-1], C.c_void_p).value
    monkeypatch.setattr(
        "parkway.backends.cpu.recorder.kernel",
        lambda isa, name: address if name == "linear_f32_F32" else library.kernel(isa, name),
    )


def floats(address: int, count: int) -> Float32s:
    return np.ctypeslib.as_array((C.c_float * count).from_address(address))


def _with_a_broken_value(ops: Any, drawn: Drawn) -> list[Any]:
    """Row 5's value is infinite, row 6's is not a number."""
    q, k = (ops.embed(drawn.calm_table(16, 128)) for _ in range(2))
    values = np.random.default_rng(0).standard_normal((16, 128), np.float32)
    values[5], values[6] = np.inf, np.nan
    v = ops.embed(CpuPack().matrix(raw_tensor("values", "F32", values)))
    return [ops.attention(ops.rope_and_write(q, k, v, PLAIN), PLAIN)]


@every_activation
@pytest.mark.parametrize("isa", ISAS)
def test_a_later_row_that_is_not_finite_changes_no_earlier_row(activations: str, isa: str) -> None:
    rig = cpu_rig(_with_a_broken_value, isa=isa, activations=activations, heads=4, kv=KvShape(1, 4, 32))
    crowd, before = rig.run(chats(9)), list(range(5))
    alone = cpu_rig(_with_a_broken_value, isa=isa, activations=activations, heads=4, kv=KvShape(1, 4, 32))
    assert same(alone.run(only(chats(9), before)), rows_of(crowd, before))
