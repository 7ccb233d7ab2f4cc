"""Mixtures of experts on the CPU: values against the reference, bits against each other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from parkway.backends import Activation, Experts
from parkway.backends.reference import ReferencePack
from tests.backends.rig import (
    ISAS,
    CpuPack,
    Drawn,
    Float32s,
    Record,
    Reference,
    chats,
    cpu_rig,
    only,
    same_bits,
)
from tests.backends.test_bits import with_planted_linear

WIDTH, FFN, COUNT = 96, 64, 11
TOLERANCES = {"f32": 3e-6, "int8": 3e-3}
"""Errors relative to a row's largest value. With int8, a hidden value on the edge may be rounded to the other side."""


def mixture(
    kind: str = "Q4_1",
    down: str = "Q8_0",
    *,
    chosen: int = 3,
    softmax: str = "all",
    normalised: bool = True,
    activation: Activation = "silu",
    biased: bool = False,
    taken: bool = False,
) -> Record:
    """Experts of drawn matrices; `taken`: only for rows whose logits are wanted."""

    def record(ops: Any, drawn: Drawn) -> Sequence[Any]:
        x, residual = (ops.embed(drawn.calm_table(320, WIDTH)) for _ in range(2))
        if taken:
            x, residual = ops.take(x), ops.take(residual)
        experts = Experts(
            COUNT,
            chosen,
            drawn.matrix("F32", COUNT, WIDTH, biased=biased),
            drawn.stack(kind, COUNT, FFN, WIDTH, biased=biased),
            drawn.stack(kind, COUNT, FFN, WIDTH, biased=biased),
            drawn.stack(down, COUNT, WIDTH, FFN, biased=biased),
            softmax,  # type: ignore[arg-type]
            normalised,
            activation,
        )
        normed, scores = ops.routed(x, drawn.vector(WIDTH), 1e-5, experts.router)
        return [ops.experts_add(normed, scores, experts, residual)]

    return record


CASES = {
    "silu": mixture(),
    "gelu, shares of all": mixture(normalised=False, activation="gelu"),
    "clamped, biased, shares of the chosen": mixture(
        "MXFP4", "MXFP4", softmax="chosen", activation="clamped", biased=True
    ),
    "integers, then floats": mixture("Q4_0", "BF16", chosen=1),
    "floats": mixture("F16", "F32", chosen=COUNT),
}
every_case = pytest.mark.parametrize("record", CASES.values(), ids=CASES.keys())
every_activation = pytest.mark.parametrize("activations", ["int8", "f32"])


def run(record: Record, step: Any, **machine: Any) -> Float32s:
    return cpu_rig(record, **machine).run(step)[0]


@every_activation
@every_case
def test_it_computes_what_the_reference_says(record: Record, activations: str) -> None:
    rig, reference = cpu_rig(record, activations=activations), Reference(record, activations=activations)
    for rows in (1, 2, 5, 17, 100):
        exact = reference.run(chats(rows))[0]
        errors = np.abs(rig.run(chats(rows))[0] - exact).max(axis=1) / np.abs(exact).max(axis=1)
        assert errors.max() < TOLERANCES[activations]


@every_activation
@every_case
def test_a_row_alone_equals_the_row_in_a_crowd_in_any_order(record: Record, activations: str) -> None:
    rig, crowd = cpu_rig(record, activations=activations), chats(40, 30)
    made = rig.run(crowd)[0]
    for row in range(0, 70, 3):
        assert same_bits(rig.run(only(crowd, [row]))[0], made[[row]])
    for rows in (2, 4, 5, 16, 33, 70):
        some = np.random.default_rng(rows).permutation(70)[:rows].tolist()
        assert same_bits(rig.run(only(crowd, some))[0], made[some])


@every_activation
@every_case
@pytest.mark.parametrize("isa", ISAS[:-1])
def test_every_instruction_set_gives_the_same_bits(record: Record, activations: str, isa: str) -> None:
    step = chats(40)
    assert same_bits(run(record, step, activations=activations), run(record, step, activations=activations, isa=isa))


@every_activation
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(activations: str, threads: int) -> None:
    one, more = (cpu_rig(mixture(), activations=activations, threads=count) for count in (1, threads))
    for rows in (1, 3, 70):
        assert same_bits(one.run(chats(rows))[0], more.run(chats(rows))[0])


def test_only_rows_whose_logits_are_wanted_are_computed() -> None:
    step = chats(20)
    assert same_bits(run(mixture(taken=True), only(step, [3, 18])), run(mixture(), step)[[3, 18]])


def scored(scores: Sequence[float]) -> Record:
    """A mixture whose experts have these scores, a 32nd of them, for every row."""

    def record(ops: Any, drawn: Drawn) -> Sequence[Any]:
        x = ops.embed(drawn.table_of(np.ones((320, 32), np.float32)))
        gate, up, down = (drawn.stack("F32", COUNT, 32, 32) for _ in range(3))
        router = drawn.table_of(np.repeat(np.array(scores, np.float32)[:, None], 32, axis=1))
        (logits,) = ops.linear(x, (router,))
        return [ops.experts_add(x, logits, Experts(COUNT, 4, router, gate, up, down, "chosen", True), x)]

    return record


def test_an_expert_whose_score_is_not_a_number_comes_last() -> None:
    broken, low = [0.0] * COUNT, [0.0] * COUNT
    broken[0], low[0] = np.nan, -1.0
    assert same_bits(run(scored(broken), chats(1)), run(scored(low), chats(1)))


def test_the_lower_experts_are_chosen_where_scores_tie() -> None:
    """Experts 2 and 5 have the same row of the router, and all others have zeros."""
    tied, other, least = [0.0] * COUNT, [0.0] * COUNT, 2.0**-20
    tied[2] = tied[5] = other[2] = other[5] = 0.125
    expected = Reference(scored(tied), activations="f32").run(chats(1))[0]
    assert np.allclose(run(scored(tied), chats(1)), expected, rtol=1e-5)
    other[10] = least  # no tie: another than expert 0 comes third
    assert not np.allclose(run(scored(other), chats(1)), expected, rtol=1e-2)


def test_a_planted_kernel_whose_order_depends_on_the_rows_of_an_expert_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record, crowd = mixture("F32", "F32"), chats(9)
    for crowded in (1, -1):
        with_planted_linear(monkeypatch, lambda rows, many=crowded: 1 if rows == 1 else many)  # type: ignore[misc]
        rig = cpu_rig(record)
        made = rig.run(crowd)[0]
        same = [same_bits(rig.run(only(crowd, [row]))[0], made[[row]]) for row in range(9)]
        assert all(same) == (crowded == 1)


@pytest.mark.parametrize("pack", [CpuPack(), ReferencePack()])
def test_a_stack_has_every_expert(pack: Any) -> None:
    stack = Drawn(pack).stack("F32", 5, 16, 32)
    assert (len(stack) if isinstance(stack, list) else stack.count) == 5
