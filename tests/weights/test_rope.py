"""Rotary positions as files have them: Llama 3's factors, and rows whose pairs are neighbours."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from parkway.weights.checkpoint import RawTensor
from parkway.weights.rope import in_halves, llama3_factors
from tests.models.whole_sequence import factors_of

LLAMA_3_1 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LLAMA_3_2 = LLAMA_3_1 | {"factor": 32.0}


@pytest.mark.parametrize(("scaling", "dims"), [(LLAMA_3_1, 128), (LLAMA_3_2, 64)])
def test_factors_are_those_of_transformers(scaling: dict[str, float], dims: int) -> None:
    made = llama3_factors(
        500000.0,
        dims,
        factor=scaling["factor"],
        low=scaling["low_freq_factor"],
        high=scaling["high_freq_factor"],
        context=scaling["original_max_position_embeddings"],
    )
    wanted = factors_of({**scaling, "rope_type": "llama3"}, 500000.0, dims)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, wanted, rtol=1e-7)
    assert (made[0], made[-1]) == (1, scaling["factor"])
    assert len(set(made.tolist())) > 4


@pytest.mark.parametrize("dims", [8, 4])
def test_rows_of_neighbours_come_to_lie_in_halves(dims: int) -> None:
    raw = np.arange(2 * 8 * 3, dtype=np.uint8).reshape(16, 3)
    made = in_halves(RawTensor("q", (16, 3), GGMLQuantizationType.I8, raw), 2, dims)
    order = [0, 2, 4, 6, 1, 3, 5, 7] if dims == 8 else [0, 2, 1, 3, 4, 5, 6, 7]
    assert made.raw.tolist() == raw[[*order, *(8 + lane for lane in order)]].tolist()


def test_a_bias_moves_with_its_rows() -> None:
    values = np.arange(8, dtype=np.float32)
    made = in_halves(RawTensor("q", (8,), GGMLQuantizationType.F32, values.view(np.uint8).reshape(1, -1)), 2, 4)
    assert made.raw.view(np.float32).tolist() == [[0, 2, 1, 3, 4, 6, 5, 7]]
