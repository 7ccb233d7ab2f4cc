"""Gated delta nets on the CPU: what is computed, and that neither chunks, neighbours nor slots change a bit of it."""

import numpy as np
import pytest

from parkway.backends import StateShape
from tests.backends.rig import ISAS, same_bits
from tests.backends.state_rig import LENGTH, SHAPE, SLOTS, Float32s, ReferenceRig, Row, StateRig, Weights, cut, whole

WEIGHTS = Weights(SHAPE)
ALONE = whole(LENGTH)


def in_steps(rig: StateRig, steps: list[list[Row]]) -> Float32s:
    return np.concatenate([rig.run(step) for step in steps])


@pytest.fixture(scope="module")
def prefill() -> Float32s:
    return StateRig(WEIGHTS).run(ALONE)


SHAPES = {
    "as many heads": StateShape(layers=2, k_heads=2, v_heads=2, k_dim=16, v_dim=16, taps=2),
    "shared heads": SHAPE,
    "large heads": StateShape(layers=2, k_heads=1, v_heads=3, k_dim=128, v_dim=128, taps=4),
}


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_close_to_the_reference(shape: StateShape, tiled: bool) -> None:
    weights = Weights(shape, tiled=tiled)
    rows = whole(70, 3, 16, 33)
    made, expected = StateRig(weights).run(rows), ReferenceRig(weights).run(rows)
    assert np.abs(made - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("sizes", [(1,), (5,), (16,), (15, 1, 2), (17, 31), (64,), (100, 1)])
def test_cuts_change_no_bit(prefill: Float32s, sizes: tuple[int, ...]) -> None:
    assert same_bits(in_steps(StateRig(WEIGHTS), cut(ALONE, *sizes)), prefill)


def test_neighbours_and_slots_change_no_bit(prefill: Float32s) -> None:
    rig = StateRig(WEIGHTS, slots=[2, 0, 3, 1])
    made = in_steps(rig, [[row for chat in order for row in part(chat, i)] for i, order in enumerate(ORDERS * 8)])
    kept = [row for i, order in enumerate(ORDERS * 8) for chat in order for row in part(chat, i)]
    mine = [at for at, row in enumerate(kept) if row.chat == 0]
    assert same_bits(made[mine], prefill[: len(mine)])
    assert [kept[at].position for at in mine] == list(range(len(mine)))


ORDERS = [(0, 1, 2, 3), (3, 2, 1, 0), (1, 0), (0,)]


def part(chat: int, step: int) -> list[Row]:
    """Four rows of a chat of the step, but those of chat 1 only one at a time: a cut that never falls together."""
    turn = sum(chat in ORDERS[i % len(ORDERS)] for i in range(step))
    size = 1 if chat == 1 else 4
    return [Row(chat, turn * size + i) for i in range(size)]


def test_a_slot_needs_no_clearing(prefill: Float32s) -> None:
    rig = StateRig(WEIGHTS, slots=[0, 0, 0, 0])
    for chat in range(1, SLOTS):
        rig.run([Row(chat, position) for position in range(30 * chat + 1)])
    assert same_bits(rig.run(ALONE), prefill)


@pytest.mark.parametrize("garbage", [0x00, 0x7C, 0xFC])
def test_memory_that_nobody_wrote_changes_no_bit(prefill: Float32s, garbage: int) -> None:
    assert same_bits(in_steps(StateRig(WEIGHTS, garbage=garbage), cut(ALONE, 7)), prefill)
    assert np.isfinite(prefill).all()


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads: int) -> None:
    rows = whole(40, 20, 1, 17)
    assert same_bits(StateRig(WEIGHTS, threads=threads).run(rows), StateRig(WEIGHTS).run(rows))


@pytest.mark.parametrize("isa", ISAS[:-1])
def test_every_instruction_set_gives_the_same_bits(prefill: Float32s, isa: str) -> None:
    assert same_bits(StateRig(WEIGHTS, isa=isa).run(ALONE[:50]), prefill[:50])


def test_layers_do_not_share_states(prefill: Float32s) -> None:
    """Both layers in one memory, whose steps lie between."""
    rig = StateRig(WEIGHTS)
    other = StateRig(Weights(SHAPE, layer=0), memory=rig.memory)
    made = []
    for step in cut(ALONE[:60], 9):
        made.append(rig.run(step))
        assert same_bits(other.run(step), made[-1])
    assert same_bits(np.concatenate(made), prefill[:60])


def test_a_row_that_is_not_finite_changes_no_earlier_row(prefill: Float32s) -> None:
    weights = Weights(SHAPE)
    for values in weights.inputs:
        values[45] = np.nan
    assert same_bits(StateRig(weights).run(ALONE[:60])[:45], prefill[:45])


def test_a_chat_that_goes_on_from_a_wrong_row_is_found(prefill: Float32s) -> None:
    """The promise broken in the least way: one row of 150 is computed twice."""
    rig = StateRig(WEIGHTS)
    steps = cut(ALONE, 20)
    made = in_steps(rig, [steps[0], steps[1][:-1] + steps[1][-2:-1], *steps[2:]])
    assert not same_bits(made[40:], prefill[40:])
