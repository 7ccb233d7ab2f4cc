"""Edits of one step in flight, in memory of the host that the device reads while it computes the step.

However many there are, they fit: the memory grows, and a step's words say where it lies. Writes what the kernels of
backends/cuda/sample_edits.py read.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from parkway.backends.cuda.device import Device
from parkway.runner.edits import Edits

Words = npt.NDArray[np.int32]

FIRST_WORDS = 1 << 14
"""Enough for most steps."""


class PinnedEdits:
    """Written again only when the step that it was written for has landed."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._memory = device.pinned((0,))

    def write(self, edited: Sequence[tuple[int, Edits]], rows: Words, place: Words) -> None:
        """Edits of some logit rows, by their numbers. Fills `rows` [logit rows, EDIT_WORDS] and `place`, an address."""
        self._fit(sum(_words(edits) for _, edits in edited))
        words, at = self._memory.numpy(), 0
        rows[:] = -1
        for row, edits in edited:
            count, mask_at = len(edits.ids), at + 4 * len(edits.ids)
            words[at : at + count] = edits.ids
            words[at + count : mask_at].view(np.float32)[:] = np.concatenate(edits[1:4])
            rows[row, :2] = count, at
            at = mask_at
            if edits.mask is not None:
                at += len(edits.mask)
                words[mask_at:at] = edits.mask.view(np.int32)
                rows[row, 2] = mask_at
            if edits.chain is not None:
                steps = edits.chain.view(np.int32)
                rows[row, 3:] = at, len(edits.chain)
                words[at : at + len(steps)] = steps
                at += len(steps)
        place.view(np.int64)[0] = self._memory.data_ptr()

    def _fit(self, words: int) -> None:
        if words > len(self._memory):
            self._memory = self._device.pinned((max(FIRST_WORDS, 1 << (words - 1).bit_length()),))


def _words(edits: Edits) -> int:
    mask, chain = (0 if each is None else each.nbytes // 4 for each in (edits.mask, edits.chain))
    return 4 * len(edits.ids) + mask + chain
