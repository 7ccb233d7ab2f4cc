"""Operations on each value of a row against float64, with rows that lie apart, and rows alone."""

import pytest
import torch

from parkway.backends.cuda import pointwise, rows
from tests.backends.cuda import interpreted
from tests.backends.cuda.drawn_rows import close, drawn

if not torch.cuda.is_available():
    interpreted.mend()

ROWS, WIDTH = 5, 1040


def test_scaling_rounds_once(device: torch.device) -> None:
    x = drawn(device, ROWS, WIDTH)
    wanted = (x.float() * 25.298221588134766).to(torch.bfloat16)
    assert torch.equal(pointwise.scaled(x.clone(), 25.298221588134766), wanted)


def test_a_cap_is_never_passed_and_changes_small_values_little(device: torch.device) -> None:
    x = drawn(device, ROWS, WIDTH).float() * 100
    made = pointwise.capped(x.clone(), 30.0)
    torch.testing.assert_close(made.double(), 30 * torch.tanh(x.double() / 30), rtol=1e-5, atol=1e-5)
    assert made.abs().max() <= 30


@pytest.mark.parametrize("width", [WIDTH, 1])
def test_a_gate_has_a_value_for_each_value_or_for_each_row(device: torch.device, width: int) -> None:
    x, gate = drawn(device, ROWS, 2 * WIDTH)[:, WIDTH:], drawn(device, ROWS, WIDTH, seed=1)[:, :width]
    made = pointwise.sigmoid_gate(x, gate)
    close(made, x.double() * torch.sigmoid(gate.double()))
    for row in range(ROWS):
        assert torch.equal(pointwise.sigmoid_gate(x[row : row + 1], gate[row : row + 1]), made[row : row + 1])


def test_a_residual_is_added_with_one_rounding(device: torch.device) -> None:
    x, residual = drawn(device, ROWS, WIDTH), drawn(device, ROWS, 2 * WIDTH, seed=1)[:, :WIDTH]
    assert torch.equal(pointwise.add(x, residual), (residual.float() + x.float()).to(torch.bfloat16))


def test_a_norm_and_a_residual_are_added_before_the_one_rounding(device: torch.device) -> None:
    x, residual = drawn(device, ROWS, 96), drawn(device, ROWS, 200, seed=1)[:, :96]
    weight = drawn(device, 96, seed=2).float()
    wide = x.double()
    normed = wide / torch.sqrt((wide * wide).mean(1, keepdim=True) + 1e-5) * weight.double()
    made = rows.rms_norm(x, weight, 1e-5, residual)
    torch.testing.assert_close(made.double(), residual.double() + normed, rtol=2**-8, atol=1e-5)
