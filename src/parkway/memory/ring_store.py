"""Rings of pages on the CPU, one for each slot, for layers that see a window; and copies of what is left of a chat at
some page boundary: one run of memory, ring after ring, then the checkpoints. A ring is never cleared, since a row sees
nothing that its own chat has not written."""

import ctypes as C

import psutil

from parkway.backends import Rings
from parkway.backends.cpu.library import Memory
from parkway.memory.state_store import no_room


class RingStore:
    """Rings of `slots` chats and room for `checkpoints`; `page_bytes`: of a page of a ring. Raises NoRoom where the
    machine can't hold them."""

    def __init__(self, slots: int, rings: Rings, page_bytes: int, checkpoints: int = 0) -> None:
        self.checkpoints = checkpoints
        self.ring_bytes = slots * rings.pages * page_bytes
        self.checkpoint_bytes = checkpoints * rings.kept * page_bytes
        self.bytes = self.ring_bytes + self.checkpoint_bytes
        self.rings = rings
        self._page_bytes = page_bytes
        available = psutil.virtual_memory().available
        if self.bytes > available:
            raise no_room(slots, rings.pages * page_bytes, available, "rings")
        self.memory = Memory(self.bytes, "the rings of chats")

    def begin(self, slot: int, checkpoint: int, tokens: int) -> None:
        """The slot's ring becomes what the checkpoint, taken behind so many tokens, holds."""
        for ring, kept, size_bytes in self._runs(slot, checkpoint, tokens):
            C.memmove(ring, kept, size_bytes)

    def keep(self, slot: int, checkpoint: int, tokens: int) -> None:
        """The checkpoint becomes what rows behind the first `tokens` of the slot's chat may see."""
        for ring, kept, size_bytes in self._runs(slot, checkpoint, tokens):
            C.memmove(kept, ring, size_bytes)

    def _runs(self, slot: int, checkpoint: int, tokens: int) -> list[tuple[int, int, int]]:
        """(address in the ring, address in the checkpoint, bytes)."""
        rings, size = self.rings, self._page_bytes
        ring = self.memory.address + slot * rings.pages * size
        kept = self.memory.address + self.ring_bytes + checkpoint * rings.kept * size
        return [(ring + a * size, kept + b * size, pages * size) for a, b, pages in rings.runs(tokens)]
