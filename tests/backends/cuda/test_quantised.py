"""Quantised products and decoded rows: bits against GGUF's own decoder and the kernels for bf16 matrices.

On the CPU the kernels run emulated: a few small configurations, copies and products as early and as late as may be.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from parkway.backends.bit_check import Verdict
from parkway.backends.cuda import linear, nvrtc, quantised, quantised_many
from parkway.backends.cuda.chooser import Chooser
from parkway.backends.cuda.device import AHEAD, BEHIND, ONE_BY_ONE, Device
from parkway.backends.cuda.linear_config import GATES
from parkway.backends.cuda.linears import ExactLinears
from parkway.backends.cuda.quantised import QuantConfig
from parkway.backends.cuda.quantised_config import (
    FEW_ROWS,
    FEW_THREADS,
    MAX_ROWS,
    MAX_SPLITS,
    MAX_THREADS,
    SHARED_BYTES,
    every_candidate,
    fits,
    shared_bytes,
    split_columns,
    splits,
    threads,
    window,
)
from parkway.backends.cuda.quantised_pack import LAYOUTS
from parkway.backends.cuda.quantised_subjects import wide_blocks
from parkway.backends.cuda.tuner import Tuner
from parkway.backends.cuda.weights import CudaMatrix, DenseMatrix, together
from parkway.errors import Unsupported
from tests.backends.cuda import emulated
from tests.backends.cuda.drawn_quants import BF16, activations, bits, by_split, decoded, drawn, raw_rows
from tests.backends.cuda.interpreted import mend

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    mend()

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
"""Of NumPy, under the interpreter: e^-x may overflow where silu is 0."""

TYPES = sorted(LAYOUTS)
CASES = [
    ("Q4_K", 1, 43, 2560, QuantConfig(1, 1, 3)),
    ("Q4_K", 2, 43, 1280, QuantConfig(4, 2, 2)),
    ("Q4_K", 4, 43, 2048, QuantConfig(2, 1, 2)),
    ("Q4_K", 5, 43, 1280, QuantConfig(2, 2, 3)),
    ("Q4_K", 8, 75, 1280, QuantConfig(2, 4, 3, 1)),
    ("Q6_K", 3, 43, 768, QuantConfig(1, 4, 3)),
    ("Q6_K", 13, 21, 1024, QuantConfig(2, 2, 3, 0, 1)),
    ("Q8_0", 13, 75, 1056, QuantConfig(2, 4, 3, 1)),
    ("Q4_0", 33, 43, 1056, QuantConfig(2, 2, 3, 0, 1)),
    ("Q4_1", 64, 75, 1056, QuantConfig(2, 4, 3, 1, 1)),
    ("Q4_1", 13, 75, 96, QuantConfig(4, 4, 2, 0, 1)),
    ("Q4_K", 1, 43, 2560, QuantConfig(2, 3, 2, window=2)),
    ("Q4_K", 3, 75, 2560, QuantConfig(1, 2, 3, window=16)),
    ("Q4_K", 8, 75, 5120, QuantConfig(2, 2, 3, window=3)),
    ("Q6_K", 2, 43, 1792, QuantConfig(1, 3, 2, window=4)),
    ("Q4_K", 4, 75, 2560, QuantConfig(4, 2, 2, window=16)),
    ("Q8_0", 5, 21, 1056, QuantConfig(2, 1, 4, window=16)),
    ("Q5_0", 2, 21, 1056, QuantConfig(2, 2, 3, window=4)),
    ("Q5_1", 7, 43, 1056, QuantConfig(1, 2, 3)),
    ("Q2_K", 3, 43, 1280, QuantConfig(2, 2, 2)),
    ("Q3_K", 13, 43, 768, QuantConfig(4, 2, 2)),
    ("Q5_K", 4, 43, 1792, QuantConfig(2, 3, 2, window=16)),
    ("IQ4_NL", 9, 75, 1056, QuantConfig(2, 4, 3, 1)),
    ("IQ4_XS", 5, 21, 1024, QuantConfig(2, 2, 3, 0, 1)),
    ("MXFP4", 4, 43, 2880, QuantConfig(2, 2, 3, window=3)),
    ("MXFP4", 17, 75, 1056, QuantConfig(2, 4, 3, 1, 1)),
]
"""Type, rows, outputs, inputs, configuration: every matrix unit, tile of rows and number of bands; odd shapes."""
CASE = pytest.mark.parametrize(("type_name", "rows", "outputs", "inputs", "config"), CASES)


@pytest.fixture(autouse=True, params=["late"] if ON_GPU else ["early", "late"])
def _kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not ON_GPU:
        monkeypatch.setattr(nvrtc, "kernel", emulated.kernel)
        monkeypatch.setattr(emulated.Kernel, "late", request.param == "late")


@pytest.mark.parametrize("shape", [(21, 512), (8, 1280), (13, 288), (1, 32)])
@pytest.mark.parametrize("type_name", TYPES)
def test_a_decoded_matrix_has_ggufs_bits(device: torch.device, type_name: str, shape: tuple[int, int]) -> None:
    rows, columns = shape
    if columns % LAYOUTS[type_name].block_columns:
        pytest.skip("no whole block")
    raw = raw_rows(type_name, rows, columns)
    out = torch.full((rows + 1, columns), 7, dtype=torch.bfloat16, device=device)
    quantised.dequantise(quantised.pack("drawn", type_name, raw, columns, device), out[:rows])
    assert torch.equal(bits(out[:rows]), bits(decoded(type_name, raw, device)))
    assert (out[rows] == 7).all()


@pytest.mark.parametrize("type_name", TYPES)
def test_rows_by_token(device: torch.device, type_name: str) -> None:
    raw = raw_rows(type_name, 30, 2304)
    matrix = quantised.pack("table", type_name, raw, 2304, device)
    tokens, slots, last = (
        torch.tensor(values, dtype=torch.int32, device=device)
        for values in ([29, -1, 0, 7, -1], [0, 2, 1, 0, 0], [3, 4, 21])
    )
    made = quantised.embed_rows(matrix, tokens, slots, last)
    assert torch.equal(bits(made), bits(decoded(type_name, raw, device)[[29, 21, 0, 7, 3]]))


@CASE
def test_a_product_has_the_bits_of_the_bf16_kernel(
    device: torch.device, type_name: str, rows: int, outputs: int, inputs: int, config: QuantConfig
) -> None:
    raw = raw_rows(type_name, outputs, inputs)
    matrix, weight = quantised.pack("drawn", type_name, raw, inputs, device), decoded(type_name, raw, device)
    x, bias = activations(rows, inputs, device), torch.linspace(-1, 1, outputs, device=device)
    residual = activations(rows, outputs + 5, device)[:, 5:]
    plain = quantised.linear(x, matrix, config)
    total = by_split(x, weight)
    assert torch.equal(bits(plain), bits(total.to(torch.bfloat16)))
    how: dict[str, Any] = {"bias": bias, "residual": residual, "out_dtype": torch.float32}
    full = quantised.linear(x, matrix, config, **how)
    assert torch.equal(bits(full), bits(quantised_many.finished(total, **how)))
    assert torch.equal(bits(full), bits(total + bias + residual.float()))
    expected = x.double() @ weight.double().T + bias + residual
    assert ((full - expected).abs() <= 2**-20 * (x.double().abs() @ weight.double().abs().T + 1)).all()


@pytest.mark.parametrize(
    ("type_name", "rows", "config"),
    [
        ("Q4_K", 3, QuantConfig(2, 2, 3)),
        ("Q4_K", 1, QuantConfig(1, 2, 3)),
        ("Q4_0", 4, QuantConfig(4, 1, 3)),
        ("Q8_0", 4, QuantConfig(1, 2, 3, 0, 1)),
        ("Q6_K", 9, QuantConfig(2, 4, 3, 1)),
        ("Q4_K", 4, QuantConfig(1, 2, 3, window=2)),
        ("Q4_K", 7, QuantConfig(2, 3, 2, window=16)),
        ("MXFP4", 5, QuantConfig(2, 2, 2)),
        ("Q4_K", 5, QuantConfig(4, 1, 3, window=3)),
    ],
)
def test_a_gated_product_is_the_bf16_kernels(
    device: torch.device, type_name: str, rows: int, config: QuantConfig
) -> None:
    raws = [raw_rows(type_name, 43, 1280, seed) for seed in (1, 2)]
    gate, up = (quantised.pack("drawn", type_name, raw, 1280, device) for raw in raws)
    x = activations(rows, 1280, device)
    made = quantised.gated(x, gate, up, config)
    weights = [decoded(type_name, raw, device) for raw in raws]
    expected = quantised_many.finished(*[by_split(x, weight, 2) for weight in weights], gate=GATES["silu"])
    if ON_GPU:
        assert torch.equal(bits(made), bits(expected))
    assert torch.allclose(made.float(), expected.float(), rtol=2**-7, atol=0)  # e^x is another one on the CPU


@CASE
def test_a_row_alone_is_the_row_among_others(
    device: torch.device, type_name: str, rows: int, outputs: int, inputs: int, config: QuantConfig
) -> None:
    matrix, x = drawn(type_name, outputs, inputs, device), activations(rows, inputs, device)
    whole = quantised.linear(x, matrix, config)
    for row in {0, rows // 2, rows - 1}:
        alone = quantised.linear(x[row : row + 1], matrix, QuantConfig(2, 2, 3))
        assert torch.equal(bits(alone), bits(whole[row : row + 1]))


def test_stacked_matrices_multiply_as_they_do_apart(device: torch.device) -> None:
    apart, x = [drawn("Q4_K", rows, 512, device, seed=rows) for rows in (16, 8, 11)], activations(5, 512, device)
    config = QuantConfig(2, 2, 3)
    expected = torch.cat([quantised.linear(x, matrix, config) for matrix in apart], dim=1)
    assert torch.equal(bits(quantised.linear(x, quantised.stacked(apart), config)), bits(expected))
    for wrong in (apart[::-1], [apart[0], drawn("Q6_K", 16, 512, device)], [apart[0], drawn("Q4_K", 8, 256, device)]):
        with pytest.raises(ValueError, match="stacked"):
            quantised.stacked(wrong)


def test_a_backend_multiplies_many_rows_as_few(device: torch.device, tmp_path: Path) -> None:
    linears = ExactLinears(Chooser(Tuner(tmp_path / "picks", Verdict(0, {}, 0.0))), Device(device.type))
    bias = torch.linspace(-1, 1, 16, device=device)
    matrix = quantised.pack("drawn", "Q8_0", raw_rows("Q8_0", 16, 1056), 1056, device, bias)
    x, residual = activations(70, 1056, device), activations(70, 16, device)
    many, few = (linears.rows(x[:rows], matrix, residual[:rows]) for rows in (70, 3))
    assert torch.equal(bits(many[:3]), bits(few))
    many, few = (linears.gated(x[:rows], matrix, matrix, "silu") for rows in (70, 3))
    assert many.shape == (70, 16)
    assert torch.allclose(many[:3].float(), few.float(), rtol=2**-7, atol=0)  # e^x is another one on the CPU


def test_matrices_of_one_type_become_one(device: torch.device) -> None:
    """Whatever lies between them; but those whose rows fill no tiles stay apart."""
    q, k, v = drawn("Q4_K", 16, 512, device), drawn("Q4_K", 8, 512, device), drawn("Q6_K", 8, 512, device)
    dense, odd = DenseMatrix(torch.zeros(4, 512, dtype=torch.bfloat16, device=device)), drawn("Q6_K", 5, 512, device)
    assert _joined(q, k) == ([(24, [16, 8])], (0, 1))
    assert _joined(q, v, k) == ([(24, [16, 8]), (8, [8])], (0, 2, 1))
    assert _joined(dense, v, dense, odd) == ([(8, [4, 4]), (13, [8, 5])], (0, 2, 1, 3))
    assert _joined(odd, v) == ([(5, [5]), (8, [8])], (0, 1))


def _joined(*matrices: CudaMatrix) -> tuple[list[tuple[int, list[int]]], tuple[int, ...]]:
    made = together(matrices)
    return [(part.rows, heights) for part, heights in made.parts], made.places


def test_a_bias_stays_with_its_matrix(device: torch.device) -> None:
    values, bias = torch.ones(4, 512, dtype=torch.bfloat16, device=device), torch.arange(4.0, device=device)
    with_one, without = DenseMatrix(values, bias), DenseMatrix(values)
    made = together([with_one, without, with_one])
    assert made.places == (0, 2, 1)
    biases = [part.bias for part, _ in made.parts]
    assert biases[0] is not None
    assert biases[0].tolist() == [0, 1, 2, 3] * 2
    assert biases[1] is None


@pytest.mark.skipif(not ON_GPU, reason="launches and graphs are the GPU's")
@pytest.mark.parametrize("launched", [BEHIND, AHEAD])
def test_dependent_launches_in_a_graph(device: torch.device, launched: int) -> None:
    matrix = drawn("Q4_K", 256, 256, device)
    config = every_candidate("Q4_K", 1, 1)[0]
    x = activations(4, 256, device).contiguous()

    def chain(pdl: int) -> torch.Tensor:
        y = x
        for _ in range(20):
            y = quantised.linear(y, matrix, config, residual=y, pdl=pdl)
        return y

    expected = chain(ONE_BY_ONE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = chain(launched)
    for _ in range(5):
        graph.replay()
    assert torch.equal(bits(made), bits(expected))


@pytest.mark.parametrize("type_name", TYPES)
def test_candidates_fit_and_are_there_for_every_row_count(monkeypatch: pytest.MonkeyPatch, type_name: str) -> None:
    monkeypatch.setattr("parkway.backends.cuda.quantised_config.has_warpgroups", lambda: True)
    for rows in range(1, MAX_ROWS + 1):
        for matrices, parts in itertools.product((1, 2), (1, 2, 4, 8)):
            found = quantised.candidates(rows, type_name, matrices, parts)
            assert found
            for config, tiles in itertools.product(found, (parts, 16 * parts)):
                kept = window(config, rows, type_name, matrices, parts, tiles)
                assert kept >= min(tiles // parts, 2) if config.window else kept == 0
                assert shared_bytes(config, rows, type_name, matrices, parts, kept) <= SHARED_BYTES
            most = {config: FEW_THREADS if config.window else MAX_THREADS for config in found}
            assert all(threads(config, matrices, parts) <= most[config] for config in found)
    assert not fits(QuantConfig(2, 2, 3, window=4), FEW_ROWS + 1, type_name, 1, 1)
    assert not fits(QuantConfig(2, 2, 3), MAX_ROWS + 1, type_name, 1, 1)


def test_splits_are_a_constant_of_the_shape() -> None:
    shapes = [(6144, 4096, 1), (4096, 4096, 1), (12288, 4096, 2), (4096, 12288, 1), (151936, 4096, 1), (1024, 4096, 1)]
    assert [splits(*shape) for shape in shapes] == [4, 8, 1, 8, 1, MAX_SPLITS]
    assert [splits(8, columns) for columns in (32, 576, 1024, 4096)] == [1, 1, 2, 8]
    for columns in (32, 1056, 1280, 4096, 8960):
        cut = split_columns(columns, splits(64, columns))
        assert [part.start for part in cut] == [0, *(part.stop for part in cut[:-1])]
        assert cut[-1].stop == columns
        assert all(part.start % 256 == 0 for part in cut)


@pytest.mark.parametrize(("rows", "columns"), [(3, 1280), (70, 1056)])
def test_many_rows_have_the_bits_of_few(device: torch.device, rows: int, columns: int) -> None:
    """Decoded before, split by split."""
    matrix, x = drawn("Q4_K" if columns % 256 == 0 else "Q8_0", 43, columns, device), activations(rows, columns, device)
    room = torch.full((43 * columns + 5,), torch.nan, dtype=torch.bfloat16, device=device)

    def product(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
        return linear.linear(x, weight, BF16, residual=residual, out_dtype=torch.float32)

    parts = splits(43, columns)
    assert parts == 2
    made = quantised_many.finished(quantised_many.sums(x, matrix, parts, room, product), out_dtype=torch.float32)
    for row in (0, rows - 1):
        few = quantised.linear(x[row : row + 1], matrix, QuantConfig(1, 1, 3), out_dtype=torch.float32)
        assert torch.equal(bits(few), bits(made[row : row + 1]))


def test_what_does_not_fit_is_refused(device: torch.device) -> None:
    matrix, config = drawn("Q4_0", 16, 64, device), QuantConfig(2, 2, 3)
    x = activations(3, 64, device)
    for wrong in (x.float(), x[:, :32], x[:0], x.repeat(22, 1), x.T.contiguous().T):
        with pytest.raises(ValueError, match="fit"):
            quantised.linear(wrong, matrix, config)
    with pytest.raises(ValueError, match="fit"):
        quantised.linear(x, matrix, config, bias=torch.zeros(15, device=device))
    with pytest.raises(ValueError, match="one type"):
        quantised.gated(x, matrix, drawn("Q4_1", 16, 64, device), config)
    with pytest.raises(ValueError, match="no room"):
        quantised.dequantise(matrix, torch.empty(16, 32, dtype=torch.bfloat16, device=device))
    with pytest.raises(Unsupported, match="drawn"):
        quantised.pack("drawn", "Q4_K", raw_rows("Q4_0", 8, 64), 64, device)
    with pytest.raises(Unsupported, match="drawn"):
        quantised.pack("drawn", "F16", raw_rows("Q4_0", 8, 64), 64, device)


def test_zero_padding_is_no_weight(device: torch.device) -> None:
    """Wide inputs: a row of 32 columns is filled up to 256, and nothing comes of that."""
    chance = torch.Generator(device).manual_seed(0)
    raw = wide_blocks("Q8_0", chance, 9, 512)[:, : LAYOUTS["Q8_0"].block_bytes]
    x = activations(2, 32, device)
    made = quantised.linear(x, quantised.pack("drawn", "Q8_0", raw, 32, device), QuantConfig(2, 2, 3))
    assert torch.equal(bits(made), bits(linear.linear(x, decoded("Q8_0", raw, device), BF16)))
