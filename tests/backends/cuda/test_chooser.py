"""What candidates are timed on: as many copies of the matrices as are launched at most, none larger than they are."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from parkway.backends.bit_check import Verdict
from parkway.backends.cuda.chooser import COLD_BYTES, Chooser
from parkway.backends.cuda.experts_stack import QuantStack
from parkway.backends.cuda.quantised import QuantMatrix
from parkway.backends.cuda.tuner import LAUNCHES, Tuner
from parkway.backends.cuda.weights import DenseMatrix


class _Timed(Tuner):
    """Launches as if timing, and picks the first."""

    def known(self, operation: str, name: str, candidates: Sequence[Any]) -> None:
        return None

    def pick(self, operation: str, name: str, candidates: Sequence[Any], launch: Callable[[Any, int], object]) -> Any:
        for i in range(LAUNCHES):
            launch(candidates[0], i)
        return candidates[0]


def _launched(tmp_path: Path, matrix: Any) -> list[Any]:
    """The matrices that are launched for the sake of this one."""
    launched: list[Any] = []
    chooser = Chooser(_Timed(tmp_path / "picks.json", Verdict(0, {}, 0.0)))
    picked = chooser.pick("linear", "shape", 1, lambda rows: [(0,)], (matrix,), lambda _, each: launched.extend(each))
    assert picked == (0,)
    return launched


@pytest.mark.parametrize(("rows", "copies"), [(16, LAUNCHES), (COLD_BYTES // 2048 + 1, 2), (COLD_BYTES // 1024 + 1, 1)])
def test_a_part_of_a_room_is_copied_without_the_room(tmp_path: Path, rows: int, copies: int) -> None:
    room = torch.zeros(rows + 1, 512, dtype=torch.bfloat16)
    launched = _launched(tmp_path, DenseMatrix(room[:rows]))
    storages = {each.values.untyped_storage().data_ptr(): each.values.untyped_storage().nbytes() for each in launched}
    assert list(storages.values()) == [room.nbytes, *[rows * 1024] * (copies - 1)]


def test_a_stack_of_quantised_matrices_is_copied_with_what_it_holds(tmp_path: Path) -> None:
    stack = QuantStack(2, QuantMatrix("Q4_0", 4, 32, torch.zeros(1, 2, 64, dtype=torch.uint8)), torch.ones(2, 2))
    launched = _launched(tmp_path, stack)
    assert len({each.matrix.packed.data_ptr() for each in launched}) == LAUNCHES
    assert all(each.bias.equal(stack.bias) and each.matrix.type == "Q4_0" for each in launched)
