"""Mixtures of experts: values against the reference, bits against each other.

On the CPU a few small configurations under the interpreter, on a GPU every candidate.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from parkway.backends import Activation, Experts, KvShape
from parkway.backends.bit_check import BitCheckFailed, Verdict, check
from parkway.backends.cuda import nvrtc
from parkway.backends.cuda.chooser import Chooser
from parkway.backends.cuda.device import Device
from parkway.backends.cuda.experts import ExactExperts, mixture
from parkway.backends.cuda.experts_config import PLAIN, ExpertsConfig, candidates, every_candidate
from parkway.backends.cuda.experts_route import most_tiles, route
from parkway.backends.cuda.experts_rows import Sum, combine
from parkway.backends.cuda.experts_stack import QuantStack, Stack, stacked
from parkway.backends.cuda.experts_subjects import ExpertsSubject, subject, subjects
from parkway.backends.cuda.launch import has_warpgroups
from parkway.backends.cuda.linears import ExactLinears
from parkway.backends.cuda.quantised import pack
from parkway.backends.cuda.quantised_subjects import wide_blocks
from parkway.backends.cuda.tuner import Tuner
from parkway.backends.cuda.weights import DenseMatrix
from parkway.backends.reference import Floats, ReferenceMatrix, ReferenceOps
from parkway.backends.reference_experts import experts_add
from parkway.errors import Unsupported
from tests.backends.cuda import emulated
from tests.backends.cuda.interpreted import mend

if not torch.cuda.is_available():
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
"""Of NumPy, under the interpreter: strangers hold NaN, and e^-x may overflow where an activation is 0."""

SMALL = [
    ExpertsConfig(PLAIN, 64, 16, 32, 4, 2, 32, 16, 4, 2),
    ExpertsConfig(PLAIN, 16, 32, 16, 4, 2, 16, 32, 4, 2),
]
CONFIGS = [*SMALL, *(every_candidate(streams=has_warpgroups()) if torch.cuda.is_available() else ())]


def _random(device: torch.device, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator(device).manual_seed(sum(shape)), device=device).bfloat16()


def _stack(device: torch.device, count: int, rows: int, columns: int, biased: bool) -> Stack:
    bias = _random(device, count, rows).float() if biased else None
    return Stack(count, _random(device, count * rows, columns), bias)


def _matrices(stack: Stack) -> list[ReferenceMatrix]:
    values = stack.values.double().cpu().numpy().reshape(stack.count, stack.rows, -1)
    bias = np.zeros((stack.count, stack.rows)) if stack.bias is None else stack.bias.double().cpu().numpy()
    return [ReferenceMatrix("BF16", *each) for each in zip(values, bias, strict=True)]


def _drawn(
    device: torch.device, rows: int, softmax: str, normalised: bool, kind: Activation, biased: bool
) -> ExpertsSubject:
    count, chosen, width, ffn = 7, 3, 48, 37
    how = Experts(count, chosen, None, None, None, None, softmax, normalised, kind)  # type: ignore[arg-type]
    shapes = ((ffn, width), (ffn, width), (width, ffn))
    gate, up, down = (_stack(device, count, *shape, biased) for shape in shapes)
    logits = _random(device, rows, count).float()
    return ExpertsSubject(
        "experts", CONFIGS, _random(device, rows, width), logits, how, (gate, up, down), _random(device, rows, width)
    )


def _expected(drawn: ExpertsSubject) -> Floats:
    """By the reference."""
    gate, up, down = (_matrices(stack) for stack in drawn.stacks if isinstance(stack, Stack))
    x, residual, logits = (each.double().cpu().numpy() for each in (drawn.x, drawn.residual, drawn.logits))
    reference = ReferenceOps(KvShape(1, 1, 1))
    return experts_add(reference, x, logits, replace(drawn.how, gate=gate, up=up, down=down), residual)


@pytest.mark.parametrize(
    ("rows", "softmax", "normalised", "kind", "biased"),
    [
        (1, "all", True, "silu", False),
        (5, "all", False, "gelu", True),
        (20, "chosen", False, "clamped", True),
        (70, "all", False, "silu", False),
    ],
)
@pytest.mark.parametrize("config", CONFIGS)
def test_a_mixture_is_near_float64(
    device: torch.device,
    config: ExpertsConfig,
    rows: int,
    softmax: str,
    normalised: bool,
    kind: Activation,
    biased: bool,
) -> None:
    drawn = _drawn(device, rows, softmax, normalised, kind, biased)
    if config.kernel != PLAIN:
        pytest.skip("widths of rows that bulk loads can't have")
    made = mixture(drawn.x, drawn.logits, drawn.how, drawn.stacks, drawn.residual, config, drawn.rooms).rows()
    expected = _expected(drawn)
    errors = np.abs(made.double().cpu().numpy() - expected).max(axis=1) / np.abs(expected).max(axis=1)
    assert errors.max() < 2.0**-7  # hidden rows, results and their sum are rounded to bf16


@pytest.mark.parametrize(("rows", "count"), [(1, 12), (3, 12), (64, 12), (65, 12), (100, 12), (40, 100), (70, 100)])
def test_places_are_sorted_by_expert_and_tiles_cover_them(device: torch.device, rows: int, count: int) -> None:
    chosen, tile = 4, 16
    logits = _random(device, rows, count).float()
    routes = route(logits, chosen, of_all=False, tile=tile)
    experts = torch.argsort(-logits, dim=1, stable=True)[:, :chosen].int()
    assert torch.equal(routes.experts, experts)
    order = torch.argsort(experts.flatten(), stable=True)
    assert torch.equal(routes.row_of, (order // chosen).int())
    assert torch.equal(routes.places.flatten()[order], torch.arange(rows * chosen, device=device, dtype=torch.int32))
    tiles = routes.tiles[: routes.count.item()].tolist()
    assert len(tiles) <= most_tiles(rows, count, chosen, tile)
    assert all(0 < held <= tile for _, _, held in tiles)
    covered = [(place, expert) for expert, first, held in tiles for place in range(first, first + held)]
    assert covered == list(enumerate(experts.flatten()[order].tolist()))


def test_equal_logits_go_to_the_lower_experts_and_broken_ones_to_different_experts(device: torch.device) -> None:
    logits = torch.zeros((3, 9), device=device)
    logits[0, 4] = logits[0, 7] = 1.0
    logits[1] = torch.nan
    logits[2] = -torch.inf
    routes = route(logits, 4, of_all=True, tile=16)
    assert routes.experts.tolist() == [[4, 7, 0, 1], [0, 1, 2, 3], [0, 1, 2, 3]]


@pytest.fixture
def emulation(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of CUDA C++ run emulated where there is no GPU."""
    if device.type == "cpu":
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("type_name", "biased", "kind"), [("Q4_K", False, "silu"), ("Q4_K", False, "gelu"), ("MXFP4", True, "clamped")]
)
def test_quantised_experts_have_the_bits_of_decoded_ones(
    device: torch.device, type_name: str, biased: bool, kind: Activation
) -> None:
    """Alone, rows are multiplied by matrices as they are; where they are many, by decoded ones."""
    chance = torch.Generator(device).manual_seed(9)
    how = Experts(2, 1, None, None, None, None, "chosen", True, kind)
    drawn = subject(chance, SMALL, how, rows=66, width=256, ffn=256, biased=biased, type_name=type_name)
    whole = drawn.output(SMALL[0], slice(0, 66))
    assert whole.count_nonzero() > 66 * 200
    for rows in (slice(5, 6), slice(10, 30)):
        assert torch.equal(drawn.output(SMALL[0], rows), whole[rows])


def _subject(device: torch.device) -> ExpertsSubject:
    """Small enough for the interpreter; the tails of rows, outputs and inputs are ragged."""
    chance = torch.Generator(device).manual_seed(5)
    how = Experts(4, 2, None, None, None, None, "all", False)
    return subject(chance, SMALL, how, rows=70, width=48, ffn=32)


def test_rows_alone_equal_rows_in_a_crowd_whatever_the_tile(device: torch.device) -> None:
    verdict = check([_subject(device)], torch.equal)
    assert not verdict.dropped


def test_rows_in_another_order_have_the_same_bits(device: torch.device) -> None:
    drawn = _subject(device)
    whole = drawn.output(SMALL[0], slice(0, drawn.rows))
    order = torch.randperm(drawn.rows, generator=torch.Generator().manual_seed(1)).to(device)
    mixed = replace(drawn, x=drawn.x[order], logits=drawn.logits[order], residual=drawn.residual[order])
    assert torch.equal(mixed.output(SMALL[1], slice(0, drawn.rows)), whole[order])


def test_every_candidate_passes_the_check(device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("the interpreter would take minutes")
    verdict = check(subjects(device, 3), torch.equal)
    assert not verdict.dropped


@dataclass(frozen=True, slots=True)
class _Planted(ExpertsSubject):
    """Sums a row from the other end where its expert has no other row."""

    def output(self, config: ExpertsConfig, rows: slice) -> torch.Tensor:
        if rows.stop - rows.start > 1:
            return super(_Planted, self).output(config, rows)
        gate, up, down = self.stacks
        assert isinstance(gate, Stack)
        assert isinstance(up, Stack)
        gate, up = (Stack(each.count, each.values.flip(1).contiguous(), each.bias) for each in (gate, up))
        turned = replace(self, x=self.x.flip(1), stacks=(gate, up, down))
        return super(_Planted, turned).output(config, rows)


def test_a_planted_order_that_depends_on_the_group_is_found(device: torch.device) -> None:
    sound = _subject(device)
    planted = _Planted(*(sound.name, sound.candidates, sound.x, sound.logits, sound.how, sound.stacks, sound.residual))
    with pytest.raises(BitCheckFailed, match="experts"):
        check([planted], torch.equal)


@pytest.mark.parametrize("rows", [1 << i for i in range(14)])
@pytest.mark.parametrize("streams", [False, True])
def test_candidates_are_few_and_known_to_the_check(rows: int, streams: bool) -> None:
    named = candidates(rows, streams=streams)
    assert 1 <= len(set(named)) == len(named) <= 8
    assert set(named) <= set(every_candidate(streams=streams))
    assert streams or all(config.kernel == PLAIN for config in named)


def test_the_operation_adds_to_the_residual(device: torch.device, tmp_path: Path) -> None:
    drawn = _drawn(device, 5, "all", True, "silu", False)
    chooser = Chooser(Tuner(tmp_path / "picks.json", Verdict(0, {}, 0.0)))
    gate, up, down = drawn.stacks
    how = replace(drawn.how, gate=gate, up=up, down=down)
    experts = ExactExperts(chooser, ExactLinears(chooser, Device(device.type)), Device(device.type), drawn.rooms)
    made = experts.add(drawn.x, drawn.logits, how, drawn.residual).rows()
    config = candidates(5, streams=False)[0]
    expected = mixture(drawn.x, drawn.logits, how, drawn.stacks, drawn.residual, config, drawn.rooms)
    assert torch.equal(made, expected.rows())


@pytest.mark.parametrize("width", [48, 64])
def test_sums_are_normed_as_they_are_and_a_row_as_if_alone(device: torch.device, width: int) -> None:
    rows, chosen = 9, 3
    routes = route(_random(device, rows, 7).float(), chosen, of_all=True, tile=4)
    results, residual = _random(device, rows * chosen, width), _random(device, rows, width)
    weight = _random(device, width).float()
    sums = Sum(results, routes, residual)
    normed = sums.normed(weight, 1e-5)
    wide = sums.rows().double()
    expected = wide / torch.sqrt((wide * wide).mean(1, keepdim=True) + 1e-5) * weight.double()
    assert torch.equal(sums.rows(), combine(results, routes, residual))
    assert torch.allclose(normed.double(), expected, rtol=2.0**-7)
    last = replace(routes, places=routes.places[-1:], weights=routes.weights[-1:])
    assert torch.equal(Sum(results, last, residual[-1:]).normed(weight, 1e-5), normed[-1:])


def test_a_stack_has_the_matrices_of_all_experts(device: torch.device) -> None:
    first, second = (DenseMatrix(_random(device, 5, width), _random(device, 5).float()) for width in (16, 16))
    made = stacked([first, second])
    assert isinstance(made, Stack)
    assert (made.count, made.rows, made.columns, made.bytes) == (2, 5, 16, 320)
    assert torch.equal(made.values[5:], second.values)
    assert made.bias is not None
    assert first.bias is not None
    assert torch.equal(made.bias[0], first.bias)
    chance = torch.Generator(device).manual_seed(1)
    quants = [pack("w", kind, wide_blocks(kind, chance, 8, 256), 256, device) for kind in ("Q4_K", "Q4_K", "Q6_K")]
    both = stacked(quants[:2])
    assert isinstance(both, QuantStack)
    assert (both.count, both.rows, both.columns, both.type) == (2, 8, 256, "Q4_K")
    with pytest.raises(Unsupported, match="not of one type"):
        stacked(quants)
    with pytest.raises(Unsupported, match="not of one type"):
        stacked([first, quants[0]])
