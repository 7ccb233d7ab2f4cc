"""Embeddings while their prompts are computed: from hidden states to one vector, which gets the length 1.

Knows no runner and no plan.
"""

import math
from array import array

import numpy as np
import numpy.typing as npt

from parkway.request import Request

Floats = npt.NDArray[np.float32]


class Embeddings:
    """Those of open requests. A mean is the float64 sum of all rows, added one by one as they stand in the prompt, so
    that it does not depend on the chunks that they came in; divided once, and rounded once to float32."""

    def __init__(self) -> None:
        self._sums: dict[int, npt.NDArray[np.float64]] = {}

    def add(self, request_id: int, hidden: Floats) -> None:
        """The next rows [rows, width] that the request is owed."""
        total = self._sums.setdefault(request_id, np.zeros(hidden.shape[1]))
        for row in hidden:
            total += row

    def take(self, request: Request) -> bytes:
        """What came of a request whose prompt has been computed, as float32; nothing if it asked for none."""
        total = self._sums.pop(request.id, None)
        if total is None:
            return b""
        rows = len(request.prompt) if request.sampling.embed == "mean" else 1
        return (total / rows).astype("<f4").tobytes()

    def drop(self, request_id: int) -> None:
        """The request has ended."""
        self._sums.pop(request_id, None)


def normalised(embedding: bytes, dimensions: int | None) -> "array[float]":
    """The first `dimensions` of a vector of float32, or all, divided by their length: once, from exact squares."""
    vector = array("f", embedding)[:dimensions]
    length = math.sqrt(math.fsum(each * each for each in vector))
    return array("f", (each / length for each in vector)) if length else vector
