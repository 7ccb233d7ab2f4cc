"""Which configuration of a kernel runs: for each operation, shape and bucket of row counts one, timed when first met.

Every candidate gives the same bits, so this decides about speed alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol

import torch

from parkway.backends.cuda.tuner import LAUNCHES, Tuner

COLD_BYTES = 150_000_000
"""Candidates are timed on copies of a weight that no cache holds together: in a step, every weight is cold."""


class Sized(Protocol):
    @property
    def bytes(self) -> int: ...


def bucket(rows: int) -> int:
    """The least power of two that is not less."""
    return 1 << (rows - 1).bit_length()


class Chooser:
    """Picks by (operation, shape, bucket), and remembers."""

    def __init__(self, tuner: Tuner) -> None:
        self._tuner = tuner
        self._picked: dict[tuple[str, str, int], Any] = {}

    def pick(
        self,
        operation: str,
        shape: str,
        rows: int,
        candidates: Callable[[int], Sequence[Any]],
        matrices: tuple[Sized, ...],
        launch: Callable[[Any, Any], None],
    ) -> Any:
        """The configuration for `rows` rows. `launch(config, matrices)` runs one on these or on copies of them."""
        key = (operation, shape, bucket(rows))
        if key not in self._picked:
            offered = candidates(key[2])
            name = f"{shape} {key[2]}"
            known = self._tuner.known(operation, name, offered)
            self._picked[key] = known or self._time(operation, name, offered, matrices, launch)
        return self._picked[key]

    def _time(
        self,
        operation: str,
        name: str,
        offered: Sequence[Any],
        matrices: tuple[Sized, ...],
        launch: Callable[[Any, Any], None],
    ) -> Any:
        copies = min(LAUNCHES, -(-COLD_BYTES // max(1, sum(matrix.bytes for matrix in matrices))))
        cold = [matrices, *(tuple(map(_copied, matrices)) for _ in range(copies - 1))]
        return self._tuner.pick(operation, name, offered, lambda config, i: launch(config, cold[i % len(cold)]))


def _copied(value: Any) -> Any:
    """A matrix with tensors of its own. Of a part of a larger memory only that part is copied."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _copied(getattr(value, field.name)) for field in fields(value)})
    return value
