"""The delta rule's kernels against the reference, and that neither cuts nor neighbours nor slots change a bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from parkway.backends import StateShape
from parkway.backends.cuda import delta_rows
from parkway.backends.cuda.attention_work import Chunks
from parkway.backends.cuda.delta import BLOCK, Config, candidates, list_runs, most_blocks
from parkway.backends.cuda.delta_subjects import BROKEN, EPSILON, DeltaSubject, subject
from parkway.backends.reference_states import States, delta_net, gated_norm
from parkway.errors import Unsupported
from tests.backends.cuda import interpreted

if not torch.cuda.is_available():
    interpreted.mend()

SHAPE = StateShape(layers=2, k_heads=1, v_heads=2, k_dim=32, v_dim=32, taps=4)
ODD = StateShape(layers=1, k_heads=2, v_heads=4, k_dim=24, v_dim=16, taps=3)
CONFIG = Config(32, 4, 2)
CHATS = (24, 19, 16, 7)
SOUND = CHATS[0] - BROKEN
ALL = [(chat, 0, tokens) for chat, tokens in enumerate(CHATS)]
FIRST = [(0, 0, SOUND)]


@pytest.fixture(scope="module")
def drawn(device: torch.device) -> DeltaSubject:
    return subject(device, 0, SHAPE, chats=CHATS)


@pytest.fixture(scope="module")
def whole(drawn: DeltaSubject) -> torch.Tensor:
    return drawn.computed(CONFIG, [ALL])


def of_chat(values: torch.Tensor, chat: int, end: int) -> torch.Tensor:
    first = sum(CHATS[:chat])
    return values[first : first + end]


def in_float64(subject: DeltaSubject) -> torch.Tensor:
    shape = subject.shape
    inputs = subject.inputs.double().cpu().numpy()
    widths = np.cumsum([shape.k_heads * shape.k_dim] * 2 + [shape.v_heads * shape.v_dim, shape.v_heads])
    net = replace(
        subject.net,
        convolution=subject.net.convolution.double().cpu().numpy(),
        decay=subject.net.decay.double().cpu().numpy(),
        bias=subject.net.bias.double().cpu().numpy(),
    )
    places = [(chat, position) for chat, tokens in enumerate(CHATS) for position in range(tokens)]
    states: States = {}
    with np.errstate(invalid="ignore"):  # some rows are NaN
        return torch.from_numpy(delta_net(states, shape, net, places, *np.split(inputs, widths, axis=1)))


@pytest.mark.parametrize(("shape", "tiled"), [(SHAPE, False), (ODD, False), (ODD, True)])
def test_close_to_the_reference(device: torch.device, shape: StateShape, tiled: bool) -> None:
    drawn = subject(device, 1, shape, tiled=tiled, chats=CHATS)
    made = drawn.computed(candidates(shape)[0], [ALL]).double().cpu()
    wanted = in_float64(drawn)
    for chat, tokens in enumerate(CHATS):
        end = SOUND if chat == 0 else tokens
        mine, right = of_chat(made, chat, end), of_chat(wanted, chat, end)
        assert (mine - right).norm() < 2**-7 * right.norm()


@pytest.mark.parametrize("sizes", [(1,), (5,), (15, 1, 2), (16, 4)])
def test_cuts_change_no_bit(drawn: DeltaSubject, whole: torch.Tensor, sizes: tuple[int, ...]) -> None:
    end = SOUND
    steps: list[list[tuple[int, int, int]]] = []
    at = 0
    while at < end:
        steps.append([(0, at, min(sizes[len(steps) % len(sizes)], end - at))])
        at += steps[-1][0][2]
    made = drawn.computed(CONFIG, steps)
    assert torch.equal(of_chat(made, 0, end), of_chat(whole, 0, end))


def test_neighbours_and_order_change_no_bit(drawn: DeltaSubject, whole: torch.Tensor) -> None:
    steps = [[(3, 0, 4), (1, 0, 1)], [(1, 1, 1), (2, 0, 16), (3, 4, 1)], [(3, 5, 2), (1, 2, 17)]]
    made = drawn.computed(CONFIG, steps)
    for chat in (1, 2, 3):
        assert torch.equal(of_chat(made, chat, CHATS[chat]), of_chat(whole, chat, CHATS[chat]))


def test_a_slot_needs_no_clearing(drawn: DeltaSubject, whole: torch.Tensor) -> None:
    states = drawn.garbage()
    for chat in (2, 3, 1):  # all in slot 0
        rows = of_chat(drawn.inputs, chat, CHATS[chat])
        made = drawn.step(states, [(0, 0, CHATS[chat])], rows, CONFIG)
        assert torch.equal(made, of_chat(whole, chat, CHATS[chat]))


def test_rows_that_are_not_finite_change_no_earlier_row(drawn: DeltaSubject, whole: torch.Tensor) -> None:
    """In one step with them, and in one that ends before them; both in the middle of a block."""
    made = drawn.computed(CONFIG, [FIRST])
    assert torch.equal(of_chat(made, 0, SOUND), of_chat(whole, 0, SOUND))
    assert of_chat(whole, 0, SOUND).isfinite().all()


@pytest.mark.parametrize("config", [Config(16, 2, 2)])
def test_configurations_give_the_same_bits(drawn: DeltaSubject, whole: torch.Tensor, config: Config) -> None:
    made = drawn.computed(config, [ALL])
    for chat, tokens in enumerate(CHATS):
        end = SOUND if chat == 0 else tokens
        assert torch.equal(of_chat(made, chat, end), of_chat(whole, chat, end))


def test_the_other_layer_is_left_alone(drawn: DeltaSubject) -> None:
    states = drawn.garbage()
    drawn.step(states, [(1, 0, 19)], of_chat(drawn.inputs, 1, 19), CONFIG)
    for part in (states.matrices, states.keys, states.wrongs, states.gains, states.inputs):
        assert part[:, 0].isnan().all()
        assert part[[0, 2, 3]].isnan().all()


def test_a_row_that_is_computed_twice_is_found(drawn: DeltaSubject, whole: torch.Tensor) -> None:
    """The promise broken in the least way: of 19 rows one is taken for its neighbour."""
    states = drawn.garbage()
    rows = of_chat(drawn.inputs, 1, 19).clone()
    rows[14] = rows[13]
    made = drawn.step(states, [(1, 0, 19)], rows, CONFIG)
    assert torch.equal(made[:14], of_chat(whole, 1, 14))
    assert not torch.equal(made[15:], of_chat(whole, 1, 19)[15:])


@pytest.mark.parametrize("change", [{"v_dim": 24}, {"taps": 1}], ids=str)
def test_a_shape_that_no_kernel_has_is_named(change: dict[str, int]) -> None:
    with pytest.raises(Unsupported, match=r"delta nets of 32 x (24|32) with a convolution over [14] tokens"):
        candidates(replace(SHAPE, **change))


@pytest.mark.parametrize(("heads", "dim"), [(4, 32), (3, 48)])
def test_gated_norm_is_the_reference(device: torch.device, heads: int, dim: int) -> None:
    chance = torch.Generator().manual_seed(3)
    x, gate = (torch.randn(5, heads * dim, generator=chance).to(device, torch.bfloat16) for _ in range(2))
    weight = torch.randn(dim, generator=chance).to(device)
    made = delta_rows.gated_norm(x, gate, weight, EPSILON)
    exact = [each.double().cpu().numpy() for each in (x, gate, weight)]
    wanted = gated_norm(exact[0], exact[1], exact[2], EPSILON)
    torch.testing.assert_close(made.double().cpu(), torch.from_numpy(wanted), rtol=2**-8 + 2**-14, atol=1e-6)
    for row in range(5):
        assert torch.equal(
            delta_rows.gated_norm(x[row : row + 1], gate[row : row + 1], weight, EPSILON), made[row : row + 1]
        )


def test_lists_name_every_block_of_every_run_and_nobody_behind_them() -> None:
    row, tokens, slot, start = np.array([[0, 18, 19], [18, 1, 33], [4, 0, 9], [15, 32, 7]], np.int32)
    runs, blocks = np.full((5, 5), 7, np.int32), np.full((most_blocks(52, 5), 2), 7, np.int32)
    list_runs(Chunks(row, tokens, slot, start), runs, blocks)
    assert runs.tolist() == [[0, 18, 4, 15, 0], [18, 1, 0, 32, 3], [19, 33, 9, 7, 4], [0] * 5, [0] * 5]
    assert blocks[:7].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [2, 0], [2, 1], [2, 2]]
    assert (blocks[7:, 0] == -1).all()


@pytest.mark.parametrize("rows", [1, 2, 17, 18, 40])
def test_no_step_has_more_blocks_than_there_is_room_for(rows: int) -> None:
    for runs in range(1, rows + 1):
        each, rest = divmod(rows, runs)
        tokens = np.array([each + (i < rest) for i in range(runs)])
        blocks = sum(max(-(-(start + n) // BLOCK) for start in range(BLOCK)) for n in tokens.tolist())
        assert blocks <= most_blocks(rows, runs)
