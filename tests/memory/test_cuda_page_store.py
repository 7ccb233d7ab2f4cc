"""The GPU's pool: as many pages as the tokens need, each in one run, or one sentence."""

from types import SimpleNamespace

import pytest
import torch

from parkway.backends import KvShape
from parkway.errors import NoRoom
from parkway.memory.cuda_page_store import CudaPageStore

SHAPE = KvShape(layers=3, kv_heads=2, head_dim=16)
PAGE_BYTES = 3 * 2 * 2 * 64 * 16 * 2


@pytest.mark.parametrize(("tokens", "pages"), [(64, 1), (65, 2), (128, 2)])
def test_pages_are_whole_and_lie_in_one_run(device: torch.device, tokens: int, pages: int) -> None:
    store = CudaPageStore(tokens, SHAPE, device)
    assert store.memory.shape == (pages, 3, 2, 2, 64, 16)
    assert (store.pages, store.page_bytes, store.bytes) == (pages, PAGE_BYTES, pages * PAGE_BYTES)
    assert store.page(pages - 1).is_contiguous()
    assert store.memory.nbytes == store.bytes


def test_a_pool_beyond_the_devices_memory_says_what_fits(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=100 * 2**10))
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (100 * 2**10, 0))
    with pytest.raises(NoRoom) as raised:
        CudaPageStore(128 * 1024, SHAPE, device)
    told = "--ctx-size 131072: the KV pool needs 48 MiB, 0 MiB are free on the device; at most 256 tokens fit"
    assert str(raised.value) == told
    assert CudaPageStore(256, SHAPE, device).pages == 4
