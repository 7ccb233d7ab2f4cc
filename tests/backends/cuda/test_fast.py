"""What our kernels are compared with: torch's products and its attention, against float64 and against ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parkway.backends import Attention, KvShape
from parkway.backends.bit_check import Verdict
from parkway.backends.cuda import attention
from parkway.backends.cuda.attention import Choices, Work, few_candidates, many_candidates
from parkway.backends.cuda.attention_subjects import AttentionSubject, Shape, subject
from parkway.backends.cuda.attention_work import NEVER_WHOLE, Lists, build
from parkway.backends.cuda.chooser import Chooser
from parkway.backends.cuda.device import DENSE, Device
from parkway.backends.cuda.fast import FastLinears, FastOps
from parkway.backends.cuda.linears import ExactLinears
from parkway.backends.cuda.operations import CudaOps, Pool, StepTensors
from parkway.backends.cuda.tuner import Tuner
from parkway.backends.cuda.weights import DenseMatrix
from tests.backends.cuda import interpreted

if not torch.cuda.is_available():
    interpreted.mend()

pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")

ROWS, INPUTS, OUTPUTS = 7, 48, 40
SHAPE = Shape(4, 2, 16)
CHATS = ((0, 20), (300, 1), (270, 5), (300, 40))
"""First position and rows of each: two prompts, one of them behind what is there already, and two of few rows."""

Drawn = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def products_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has none of bf16 matrices on the CPU."""
    product = torch.mm

    def widened(x: torch.Tensor, y: torch.Tensor, **how: Any) -> torch.Tensor:
        return product(x.float(), y.float()) if how else product(x, y)

    if not torch.cuda.is_available():
        monkeypatch.setattr(torch, "mm", widened)


@pytest.fixture
def drawn(device: torch.device) -> Drawn:
    chance = torch.Generator(device).manual_seed(3)
    return lambda *shape: torch.randn(shape, generator=chance, device=device).bfloat16()


@pytest.fixture
def linears(device: torch.device, tmp_path: Path) -> tuple[FastLinears, ExactLinears]:
    chooser = Chooser(Tuner(tmp_path / "picks.json", Verdict(0, {}, 0.0)))
    return FastLinears(chooser, Device(device.type)), ExactLinears(chooser, Device(device.type))


@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product_has_its_bias_and_its_residual(
    linears: tuple[FastLinears, ExactLinears],
    drawn: Drawn,
    with_bias: bool,
    with_residual: bool,
    out_dtype: torch.dtype,
) -> None:
    x, matrix = drawn(ROWS, INPUTS), DenseMatrix(drawn(OUTPUTS, INPUTS), 8 * drawn(OUTPUTS).float())
    matrix = matrix if with_bias else DenseMatrix(matrix.values)
    residual = 8 * drawn(ROWS, OUTPUTS) if with_residual else None
    parts = [x.double() @ matrix.values.double().T]
    parts += [each.double() for each in (matrix.bias, residual) if each is not None]
    expected = torch.stack([part.expand(ROWS, OUTPUTS) for part in parts])
    for each in reversed(linears):  # the fast one adds to the residual in place
        made = each.rows(x, matrix, residual, out_dtype)
        assert made.dtype == out_dtype
        # A rounding to bf16 behind each addition.
        assert ((made.double() - expected.sum(0)).abs() <= 2.0**-7 * expected.abs().sum(0)).all(), type(each)


@pytest.mark.parametrize("activation", ["silu", "gelu", "clamped"])
def test_a_gated_product_is_near_ours(linears: tuple[FastLinears, ExactLinears], drawn: Drawn, activation: Any) -> None:
    x, gate, up = drawn(ROWS, INPUTS), DenseMatrix(drawn(OUTPUTS, INPUTS)), DenseMatrix(drawn(OUTPUTS, INPUTS))
    fast, exact = (each.gated(x, gate, up, activation).double() for each in linears)
    assert ((fast - exact).abs() <= 2.0**-6 * (exact.abs() + 1)).all()
    assert exact.abs().max() > 1


def attended(made: AttentionSubject, ops: CudaOps, **how: Any) -> torch.Tensor:
    """What a step of all chunks computes, bf16 [rows, heads * head_dim], and of some rows that nobody has."""
    rows, device, window = made.rows + 3, made.q.device, how.get("window", 0)
    sizes = ops.work_sizes(rows, len(CHATS), made.tables.shape[1], window)
    lists = Lists(*(np.zeros(length, np.int32) for length in sizes.shapes.values()))
    counts = build(sizes, made.chunks, rows, lists)
    few, few_count, many, many_count = (torch.from_numpy(part).to(device) for part in lists)
    works = {window: Work(few[: counts[0]], few_count, many[: counts[1]], many_count)}
    nothing = torch.zeros(rows, dtype=torch.int32, device=device)
    ops.begin(StepTensors(nothing, nothing, nothing, made.tables, nothing, nothing, works, made.chunks))
    q = torch.cat([made.q.view(made.rows, -1), made.q.new_zeros(rows - made.rows, SHAPE.heads * SHAPE.head_dim)])
    return ops.attention(q, Attention(1, SHAPE.heads, 0.25, None, **how))


@pytest.mark.parametrize("partials", [None, 0], ids=["room for splits", "no room for splits"])
@pytest.mark.parametrize("window", [0, 70])
def test_attention_is_near_ours(
    device: torch.device,
    linears: tuple[FastLinears, ExactLinears],
    monkeypatch: pytest.MonkeyPatch,
    window: int,
    partials: int | None,
) -> None:
    made = subject(device, 0, SHAPE, CHATS)
    pool = Pool(KvShape(2, SHAPE.kv_heads, SHAPE.head_dim), SHAPE.heads, made.pool, {})
    choices = Choices(few_candidates(2, 16), many_candidates(2, 16))
    no_experts: Any = None
    how = (pool, linears[0], no_experts, choices, Device(device.type), DENSE)
    ops = (FastOps(*how), CudaOps(*how))
    monkeypatch.setattr(attention, "side_by_side", lambda device, kv_heads: NEVER_WHOLE)
    monkeypatch.setattr(torch, "empty", lambda shape, **how: torch.full(shape, torch.nan, **how))
    if partials is not None:
        for each in ops:
            each._partials = partials
    fast, exact = (attended(made, each, window=window).double() for each in ops)
    assert ((fast - exact).abs() <= 2.0**-5 * (exact.abs() + exact.abs().mean())).all()
    assert exact[: made.rows].any(1).all()
    assert not exact[made.rows :].any()
