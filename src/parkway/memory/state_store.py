"""What delta nets keep of each slot's chat on the CPU, and copies of that as it was at some page boundary: one run of
memory, slot after slot, then the checkpoints. A chat's first positions say that nothing is there yet, so that a slot is
never cleared."""

import ctypes as C

import psutil

from parkway.backends.cpu.library import Memory
from parkway.errors import NoRoom


class StateStore:
    """`slot_bytes` for each of `slots` chats and each of `checkpoints`. Raises NoRoom where the machine can't hold
    them."""

    def __init__(self, slots: int, slot_bytes: int, checkpoints: int = 0) -> None:
        self.slots = slots
        self.checkpoints = checkpoints
        self.checkpoint_bytes = checkpoints * slot_bytes
        self.bytes = slots * slot_bytes + self.checkpoint_bytes
        self._slot_bytes = slot_bytes
        available = psutil.virtual_memory().available
        if self.bytes > available:
            raise no_room(slots, slot_bytes, available)
        self.memory = Memory(self.bytes, "the states of chats")

    def begin(self, slot: int, checkpoint: int) -> None:
        """The slot's state becomes what the checkpoint holds."""
        C.memmove(self._address(slot), self._address(self.slots + checkpoint), self._slot_bytes)

    def keep(self, slot: int, checkpoint: int) -> None:
        """The checkpoint becomes what the slot's state is now."""
        C.memmove(self._address(self.slots + checkpoint), self._address(slot), self._slot_bytes)

    def _address(self, unit: int) -> int:
        return self.memory.address + unit * self._slot_bytes


def no_room(slots: int, slot_bytes: int, available: int, what: str = "states") -> NoRoom:
    """What to say where what slots keep beside pages does not fit."""
    return NoRoom(
        f"--parallel {slots}: the {what} of so many chats need {slots * slot_bytes / 2**20:,.0f} MiB, "
        f"{available / 2**20:,.0f} MiB are free; at most {available // slot_bytes} chats fit"
    )
