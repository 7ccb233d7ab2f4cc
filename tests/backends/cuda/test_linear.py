"""Matrix products: values against float64, bits against each other.

On the CPU a few small configurations under the interpreter, on a GPU every candidate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch

from parkway.backends.bit_check import BitCheckFailed, check
from parkway.backends.cuda.launch import has_warpgroups
from parkway.backends.cuda.linear import gated, linear
from parkway.backends.cuda.linear_config import PLAIN, LinearConfig, candidates, every_candidate
from parkway.backends.cuda.linear_subjects import LinearSubject, strange_rows, subjects, wide, wide_weight
from tests.backends.cuda.interpreted import mend

if not torch.cuda.is_available():
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
"""Of NumPy, under the interpreter: strangers hold NaN, and e^-x may overflow where silu is 0."""

SMALL = [LinearConfig(PLAIN, 16, 16, 32, 4, 2), LinearConfig(PLAIN, 32, 32, 16, 4, 2)]
CONFIGS, GATED_CONFIGS = (
    [*SMALL, *(every_candidate(matrices=matrices, streams=has_warpgroups()) if torch.cuda.is_available() else ())]
    for matrices in (1, 2)
)
SHAPES = [(1, 16, 16), (5, 37, 48), (19, 64, 80), (70, 24, 32)]
"""Rows, outputs, inputs."""
BUCKETS = [1 << i for i in range(14)]


def _random(device: torch.device, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator(device).manual_seed(sum(shape)), device=device).bfloat16()


def _near(y: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor) -> bool:
    """Within a rounding of the output and the rounding of an fp32 sum whose terms are as large as `scale`."""
    rounding = 2.0**-8 if y.dtype == torch.bfloat16 else 2.0**-23
    return bool(((y.double() - expected).abs() <= rounding * expected.abs() + 2.0**-20 * scale).all())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("config", CONFIGS)
def test_a_product_is_near_float64(device: torch.device, config: LinearConfig, shape: tuple[int, int, int]) -> None:
    rows, outputs, inputs = shape
    x, weight = _random(device, rows, inputs), _random(device, outputs, inputs)
    y = linear(x, weight, config)
    assert y.dtype == torch.bfloat16
    assert _near(y, x.double() @ weight.double().T, x.double().abs() @ weight.double().abs().T)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("bias_dtype", [torch.bfloat16, torch.float32])
def test_bias_and_residual_are_added_before_the_one_rounding(
    device: torch.device, config: LinearConfig, bias_dtype: torch.dtype
) -> None:
    x, weight, residual = _random(device, 5, 48), _random(device, 37, 48), _random(device, 5, 40)[:, :37]
    bias = _random(device, 37).to(bias_dtype)
    exact = linear(x, weight, config, bias=bias, residual=residual, out_dtype=torch.float32)
    expected = x.double() @ weight.double().T + bias.double() + residual.double()
    assert _near(exact, expected, x.double().abs() @ weight.double().abs().T + expected.abs())
    rounded = linear(x, weight, config, bias=bias, residual=residual)
    assert torch.equal(rounded, exact.bfloat16())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("config", GATED_CONFIGS)
def test_the_gated_product_is_near_float64(
    device: torch.device, config: LinearConfig, shape: tuple[int, int, int]
) -> None:
    rows, outputs, inputs = shape
    x, gate, up = _random(device, rows, inputs), _random(device, outputs, inputs), _random(device, outputs, inputs)
    up = up.flip(0).contiguous()
    opened, values = x.double() @ gate.double().T, x.double() @ up.double().T
    y = gated(x, gate, up, config)
    assert _near(y, opened / (1 + (-opened).exp()) * values, (opened * values).abs() + 1)
    y = gated(x, gate, up, config, activation="gelu")
    assert _near(y, torch.nn.functional.gelu(opened, approximate="tanh") * values, (opened * values).abs() + 1)
    y = gated(x, gate, up, config, activation="clamped")
    opened, values = opened.clamp(max=7), values.clamp(-7, 7) + 1
    assert _near(y, opened * torch.sigmoid(1.702 * opened) * values, (opened * values).abs() + 1)


@pytest.mark.parametrize("config", CONFIGS)
def test_it_writes_where_it_is_told(device: torch.device, config: LinearConfig) -> None:
    x, weight = _random(device, 5, 48), _random(device, 37, 48)
    room = torch.full((7, 37), torch.nan, dtype=torch.bfloat16, device=device)
    assert linear(x, weight, config, out=room[1:6]).data_ptr() == room[1:6].data_ptr()
    assert torch.equal(room[1:6], linear(x, weight, config))
    assert room[0].isnan().all()
    assert room[6].isnan().all()


@pytest.mark.parametrize("config", CONFIGS)
def test_zeros_behind_the_inputs_change_no_bit(device: torch.device, config: LinearConfig) -> None:
    x, weight = _random(device, 5, 48), _random(device, 37, 48)
    padded = [torch.nn.functional.pad(each, (0, 80)) for each in (x, weight)]
    assert torch.equal(linear(x, weight, config), linear(padded[0], padded[1], config))


def _subject(device: torch.device, name: str) -> LinearSubject:
    """Small enough for the interpreter; the tails of rows, outputs and inputs are ragged."""
    chance = torch.Generator(device).manual_seed(5)
    x = strange_rows(chance, 37, 80)
    if name == "gated":
        return LinearSubject("gated", SMALL, x, (wide_weight(chance, 27, 80), wide_weight(chance, 27, 80)))
    weight, bias, residual = wide_weight(chance, 27, 80), wide(chance, (27,)), wide(chance, (37, 27))
    return LinearSubject("linear", SMALL, x, (weight,), bias, residual, torch.float32)


@pytest.mark.parametrize("name", ["linear", "gated"])
def test_rows_alone_equal_rows_in_a_crowd_whatever_the_tile(device: torch.device, name: str) -> None:
    verdict = check([_subject(device, name)], torch.equal)
    assert not verdict.dropped


def test_every_candidate_passes_the_check(device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("the interpreter would take minutes")
    verdict = check(subjects(device, 3), torch.equal)
    assert not verdict.dropped


@dataclass(frozen=True, slots=True)
class _Planted(LinearSubject):
    """Sums a row from the other end when it is alone."""

    def output(self, config: LinearConfig, rows: slice) -> torch.Tensor:
        if rows.stop - rows.start > 1:
            return super(_Planted, self).output(config, rows)
        weights = tuple(weight.flip(1).contiguous() for weight in self.weights)
        return super(_Planted, replace(self, x=self.x.flip(1), weights=weights)).output(config, rows)


@pytest.mark.parametrize("name", ["linear", "gated"])
def test_a_planted_order_that_depends_on_the_row_count_is_found(device: torch.device, name: str) -> None:
    sound = _subject(device, name)
    planted = _Planted(
        sound.name, sound.candidates, sound.x, sound.weights, sound.bias, sound.residual, sound.out_dtype
    )
    with pytest.raises(BitCheckFailed, match=name):
        check([planted], torch.equal)


@pytest.mark.parametrize("rows", BUCKETS)
@pytest.mark.parametrize("matrices", [1, 2])
@pytest.mark.parametrize("streams", [False, True])
def test_candidates_are_few_and_known_to_the_check(rows: int, matrices: int, streams: bool) -> None:
    named = candidates(rows, 4096, matrices=matrices, streams=streams)
    assert 1 <= len(named) <= 8
    assert len(set(named)) == len(named)
    assert set(named) <= set(every_candidate(matrices=matrices, streams=streams))
    assert streams or all(config.kernel == PLAIN for config in named)


@pytest.mark.parametrize(
    ("x_shape", "weight_shape"), [((5, 48), (37, 64)), ((5, 40), (37, 40))], ids=["other width", "odd width"]
)
def test_shapes_that_do_not_fit_are_refused(
    device: torch.device, x_shape: Sequence[int], weight_shape: Sequence[int]
) -> None:
    x, weight = _random(device, *x_shape), _random(device, *weight_shape)
    with pytest.raises(ValueError, match="does not fit"):
        linear(x, weight, SMALL[0])
    with pytest.raises(ValueError, match="does not fit"):
        gated(x, weight, weight, SMALL[0])
