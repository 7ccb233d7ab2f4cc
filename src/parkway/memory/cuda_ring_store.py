"""Rings of pages on the GPU, one for each slot, for layers that see a window. None is ever cleared, since a row sees
nothing that its own chat has not written."""

from dataclasses import replace

import torch

from parkway.backends import KvShape, Rings
from parkway.backends.cuda.operations import RingPages
from parkway.memory.cuda_page_store import page_bytes, page_shape
from parkway.memory.state_store import no_room


def allocate(slots: int, rings: Rings, kv: KvShape, pages: int, device: torch.device) -> RingPages:
    """Rings for chats of up to so many pages, in layers of this shape. Raises NoRoom where the device can't hold
    them."""
    ringed = replace(kv, layers=len(rings.layers))
    tables = torch.from_numpy(rings.tables(slots, pages)).to(device)
    try:
        memory = torch.empty((slots * rings.pages, *page_shape(ringed)), dtype=torch.bfloat16, device=device)
    except torch.OutOfMemoryError:
        free_bytes = torch.cuda.mem_get_info(device)[0]
        raise no_room(slots, rings.pages * page_bytes(ringed), free_bytes, "rings") from None
    return RingPages(rings, memory, tables)
