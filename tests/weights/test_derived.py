"""Tensors made of others: which bytes they have, and how often a stack is read for its parts."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from parkway.errors import Unsupported
from parkway.weights.checkpoint import MadeTensor, RawTensor
from parkway.weights.derived import all_of, columns_of, dealt, mapped, rows_of, shaped
from tests.backends.rig import raw_tensor


def test_rows_of_a_quantised_matrix_are_its_bytes() -> None:
    matrix = raw_tensor("m", "Q8_0", np.random.default_rng(0).standard_normal((6, 64), np.float32))
    some = rows_of(matrix, slice(1, 4))
    assert (some.name, some.shape, some.type) == ("m", (3, 64), matrix.type)
    assert some.raw.tobytes() == matrix.raw[1:4].tobytes()
    order = np.array([5, 0])
    assert rows_of(matrix, order).raw.tobytes() == matrix.raw[order].tobytes()


def test_columns_of_a_quantised_matrix_are_whole_blocks() -> None:
    values = np.random.default_rng(0).standard_normal((6, 96), np.float32)
    some = columns_of(raw_tensor("m", "Q8_0", values), 32, 64)
    assert (some.name, some.shape) == ("m", (6, 64))
    assert some.raw.tobytes() == raw_tensor("m", "Q8_0", values[:, 32:]).raw.tobytes()
    for start, count in ((16, 32), (32, 16)):
        with pytest.raises(Unsupported, match=f"tensor m: {count} of its columns are no whole blocks of Q8_0"):
            columns_of(raw_tensor("m", "Q8_0", values), start, count)


def test_rows_dealt_by_kind() -> None:
    matrix = raw_tensor("m", "F32", np.arange(12 * 32, dtype=np.float32).reshape(12, 32))
    first, second = dealt(matrix, 3, 1, 3)
    assert first.raw.tobytes() == matrix.raw[[0, 4, 8]].tobytes()
    assert second.raw.tobytes() == matrix.raw[[1, 2, 3, 5, 6, 7, 9, 10, 11]].tobytes()


def test_values_of_a_vector() -> None:
    vector = RawTensor("v", (5,), GGMLQuantizationType.F32, np.arange(5, dtype=np.float32).view(np.uint8)[None])
    assert rows_of(vector, slice(0, 5, 2)).raw.view(np.float32).tolist() == [[0, 2, 4]]
    assert mapped(vector, lambda values: values + 1).raw.view(np.float32).tolist() == [[1, 2, 3, 4, 5]]
    assert shaped(vector, 1, 5).raw.shape == (1, 20)


def test_a_stack_is_read_once_for_all_of_its_matrices() -> None:
    reads = []
    whole = np.random.default_rng(0).integers(0, 256, (3 * 4, 128), np.uint8)

    def make() -> np.ndarray:
        reads.append(1)
        return whole

    experts = all_of(MadeTensor("e", (3, 4, 32), GGMLQuantizationType.F32, make))
    assert not reads
    assert [each.shape for each in experts] == [(4, 32)] * 3
    assert b"".join(each.raw.tobytes() for each in experts) == whole.tobytes()
    assert len(reads) == 1
    assert experts[1].raw.tobytes() == whole[4:8].tobytes()


def test_vectors_of_a_stack() -> None:
    biases = RawTensor(
        "b", (2, 3), GGMLQuantizationType.F32, np.arange(6, dtype=np.float32).view(np.uint8).reshape(2, -1)
    )
    assert [each.raw.view(np.float32).tolist() for each in all_of(biases)] == [[[0, 1, 2]], [[3, 4, 5]]]
