"""What delta nets keep of each slot's chat on the GPU. A chat's first positions say that nothing is there yet, so that
a slot is never cleared."""

import torch

from parkway.backends import StateShape
from parkway.backends.cuda.delta import States, slot_bytes
from parkway.memory.state_store import no_room


def allocate(slots: int, shape: StateShape, device: torch.device) -> States:
    """States of `slots` chats. Raises NoRoom where the device can't hold them."""
    try:
        return States.allocate(slots, shape, device)
    except torch.OutOfMemoryError:
        raise no_room(slots, slot_bytes(shape), torch.cuda.mem_get_info(device)[0]) from None
