"""Rings of pages: where a chat's pages lie in them, and what is kept of one at a page boundary."""

from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

from parkway.backends import KvShape, Rings, place_of
from parkway.errors import NoRoom
from parkway.memory import cuda_ring_store
from parkway.memory.cuda_checkpoints import CudaCheckpoints, checkpoint_bytes
from parkway.memory.ring_store import RingStore
from parkway.plan.step import PAGE_TOKENS

RINGS = Rings(layers=(0, 2, 3), window=100, chunk=93)
"""Three pages, of which two are kept."""
BOUNDARIES = [1, 2, 3, 4, 5, 9]


@pytest.mark.parametrize("window", [1, 2, 63, 64, 65, 512])
@pytest.mark.parametrize("chunk", [1, 2, 63, 64, 65, 256])
def test_a_ring_has_just_room_for_a_window_and_a_chunk(window: int, chunk: int) -> None:
    rings = Rings((0,), window, chunk)
    assert rings.pages * PAGE_TOKENS >= window + chunk - 1 > (rings.pages - 1) * PAGE_TOKENS
    assert rings.pages >= rings.kept
    assert rings.kept * PAGE_TOKENS >= window


def test_layers_are_counted_in_the_rings_and_in_the_pool() -> None:
    assert [place_of(layer, RINGS) for layer in range(6)] == [
        (True, 0),
        (False, 0),
        (True, 1),
        (True, 2),
        (False, 1),
        (False, 2),
    ]
    assert place_of(4, None) == (False, 4)


def test_tables_follow_from_the_slot() -> None:
    assert RINGS.tables(slots=2, pages=5).tolist() == [[0, 1, 2, 0, 1], [3, 4, 5, 3, 4]]


@pytest.mark.parametrize("pages", BOUNDARIES)
def test_runs_are_the_last_pages_in_order(pages: int) -> None:
    places = [(ring + at, kept + at) for ring, kept, count in RINGS.runs(64 * pages) for at in range(count)]
    first = max(0, pages - 2)
    assert places == [(page % 3, page - first) for page in range(first, pages)]


@pytest.mark.parametrize("pages", BOUNDARIES)
def test_the_end_of_a_ring_goes_to_a_checkpoint_and_to_another_slot(pages: int) -> None:
    store = RingStore(2, RINGS, page_bytes=8, checkpoints=3)
    assert (store.bytes, store.ring_bytes, store.checkpoint_bytes) == (2 * 3 * 8 + 3 * 2 * 8, 48, 48)
    units = store.memory.array().reshape(-1, 8)
    units[:3] = np.arange(1, 4, dtype=np.uint8)[:, None]
    store.keep(0, 2, 64 * pages)
    units[:3] = 99
    store.begin(1, 2, 64 * pages)
    moved = {page % 3 for page in range(max(0, pages - 2), pages)}
    assert [int(each[0]) for each in units[3:6]] == [page + 1 if page in moved else 0 for page in range(3)]
    assert (units == units[:, :1]).all(), "whole"
    assert not units[6:10].any(), "other checkpoints"


@pytest.mark.parametrize("pages", BOUNDARIES)
def test_the_same_on_the_device(device: torch.device, pages: int) -> None:
    rings = cuda_ring_store.allocate(2, RINGS, KvShape(5, 1, 16), 4, device)
    assert rings.pages.shape == (6, 3, 2, 1, 64, 16)
    assert rings.tables.tolist() == RINGS.tables(2, 4).tolist()
    kept = CudaCheckpoints.allocate(3, None, rings)
    assert kept.bytes == 3 * checkpoint_bytes(None, rings) == 3 * 2 * rings.pages[0].nbytes
    rings.pages.copy_(torch.tensor([1.0, 2, 3, 0, 0, 0], device=device).view(6, 1, 1, 1, 1, 1).expand_as(rings.pages))
    kept.keep(0, 2, 64 * pages)
    rings.pages[:3] = 99
    kept.begin(1, 2, 64 * pages)
    moved = {page % 3 for page in range(max(0, pages - 2), pages)}
    assert [float(page.max()) for page in rings.pages[3:]] == [page + 1 if page in moved else 0 for page in range(3)]
    assert all(float(page.min()) == float(page.max()) for page in rings.pages)


def test_rings_that_do_not_fit_are_refused_with_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=20 * 2**20))
    with pytest.raises(NoRoom, match=r"--parallel 8: the rings .* need 48 MiB, 20 MiB are free; at most 3 chats fit"):
        RingStore(8, RINGS, page_bytes=2 * 2**20)


def test_a_device_that_is_full_says_what_fits(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch, "empty", full)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (3 * 3 * 2 * 2 * 64 * 16 * 5, 0))
    with pytest.raises(NoRoom, match=r"--parallel 9: the rings .* at most 5 chats fit"):
        cuda_ring_store.allocate(9, RINGS, KvShape(5, 1, 16), 4, device)
