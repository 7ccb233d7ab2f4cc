"""The pool's pages on the GPU: one tensor of all pages, each one run of memory with all layers of its group."""

import psutil
import torch

from parkway.backends import KvShape
from parkway.errors import NoRoom
from parkway.plan.step import PAGE_TOKENS

_VALUE_BYTES = torch.bfloat16.itemsize


class CudaPageStore:
    """Pages for `tokens` tokens, bf16 [pages, layers, (keys, values), kv_heads, PAGE_TOKENS, head_dim].

    Raises NoRoom where the device can't hold them. What nobody has written is whatever was there.
    """

    def __init__(self, tokens: int, kv: KvShape, device: torch.device) -> None:
        page = page_shape(kv)
        self.pages = -(-tokens // PAGE_TOKENS)
        self.page_bytes = page_bytes(kv)
        self.bytes = self.pages * self.page_bytes
        free_bytes = _free_bytes(device)
        if self.bytes > free_bytes:
            raise NoRoom(self._too_large(tokens, free_bytes))
        try:
            self.memory = torch.empty((self.pages, *page), dtype=torch.bfloat16, device=device)
        except torch.OutOfMemoryError:  # free memory may be in pieces
            raise NoRoom(self._too_large(tokens, free_bytes)) from None

    def page(self, number: int) -> torch.Tensor:
        """The memory of a page, in one run."""
        return self.memory[number]

    def _too_large(self, tokens: int, free_bytes: int) -> str:
        return (
            f"--ctx-size {tokens}: the KV pool needs {self.bytes / 2**20:,.0f} MiB, "
            f"{free_bytes / 2**20:,.0f} MiB are free on the device; "
            f"at most {free_bytes // self.page_bytes * PAGE_TOKENS} tokens fit"
        )


def page_bytes(kv: KvShape) -> int:
    """Bytes of one page."""
    return torch.Size(page_shape(kv)).numel() * _VALUE_BYTES


def page_shape(kv: KvShape) -> tuple[int, ...]:
    return kv.layers, 2, kv.kv_heads, PAGE_TOKENS, kv.head_dim


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
