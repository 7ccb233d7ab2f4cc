"""The host's pages: memory in slabs when it is needed, every byte of it counted, never more than was allowed."""

import pytest
import torch

from parkway.errors import NoRoom
from parkway.memory import cuda_copies
from parkway.memory.cpu_copies import whole_pages
from parkway.memory.cuda_copies import PinnedSlab
from parkway.memory.host_pool import HostPool


class HeldSlab:
    pinned = False

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def page(self, index: int) -> int:
        return index


def test_slabs_come_when_they_are_needed_and_every_byte_counts() -> None:
    pool = HostPool(1000 * 2**20, 9 * 2**20, HeldSlab)
    assert (pool.pages, pool.held_bytes) == (15 * 7 + 3, 0)
    pool.prepare([8, 13, 20])
    assert pool.held_bytes == 2 * 64 * 2**20
    assert [pool.page(number) for number in (7, 8, 13, 20)] == [0, 1, 6, 6]
    pool.prepare([9])
    assert (pool.held_bytes, pool.pinned_bytes) == (2 * 64 * 2**20, 0)
    pool.prepare([15 * 7 + 2])
    assert pool.held_bytes == (2 * 64 + 32) * 2**20, "the last slab is smaller"


@pytest.mark.parametrize(
    ("most", "page", "pages"), [(2**20, 2**21, 0), (0, 100, 0), (5 * 2**20, 2**20, 5), (600, 200, 3)]
)
def test_a_small_pool_keeps_its_bound(most: int, page: int, pages: int) -> None:
    pool = HostPool(most, page, HeldSlab)
    assert pages // 2 <= pool.pages <= pages
    pool.prepare(range(pool.pages))
    assert pool.held_bytes <= most


@pytest.mark.parametrize(
    ("most", "page", "pages"),
    [(2**20, 2**21, 0), (0, 100, 0), (2**30, 3 * 2**20 + 1, 341), (2**30, 2**27, 8), (650, 200, 3)],
)
def test_plain_memory_holds_every_page_that_fits(most: int, page: int, pages: int) -> None:
    pool = HostPool(most, page, HeldSlab, whole_pages)
    pool.prepare(range(pool.pages))
    assert (pool.pages, pool.held_bytes) == (pages, pages * page)


@pytest.mark.parametrize("page_mib", [1, 9, 21, 40, 64, 65, 100])
def test_little_of_a_slab_is_lost(page_mib: int) -> None:
    pool = HostPool(2**36, page_mib * 2**20, HeldSlab)
    pool.prepare([0])
    used = pool._slab_pages * pool.page_bytes
    assert used <= pool.held_bytes <= used * 8 / 7


def test_a_slab_says_of_the_memory_in_hand_whether_it_is_pinned() -> None:
    slab = PinnedSlab(torch.zeros(2, 5, dtype=torch.bfloat16), 64)
    assert slab.pinned is torch.cuda.is_available()
    assert slab.page(2).shape == (2, 5)
    slab.page(1)[:] = 1
    slab.page(2)[:] = 3
    assert (slab.page(1) == 1).all()


def test_a_slab_that_no_machine_holds_is_refused() -> None:
    with pytest.raises(MemoryError):
        PinnedSlab(torch.zeros(1), 2**62)


def test_memory_is_made_ahead_in_order_and_all_but_that_is_given_back() -> None:
    pool = HostPool(1000 * 2**20, 9 * 2**20, HeldSlab)
    pool.reserve(100 * 2**20)
    joined(pool)
    assert pool.held_bytes == 2 * 64 * 2**20
    assert pool.has(range(14))
    assert not pool.has([14])
    pool.prepare(range(20))  # the first three slabs are used now
    pool.reserve(100 * 2**20)
    joined(pool)
    assert pool.held_bytes == 5 * 64 * 2**20
    pool.release(100 * 2**20)
    assert pool.held_bytes == 2 * 64 * 2**20
    pool.release(0)
    assert pool.held_bytes == 0


def test_memory_that_is_made_ready_is_there_at_once() -> None:
    pool = HostPool(1000 * 2**20, 9 * 2**20, HeldSlab)
    pool.make_ready(100 * 2**20)
    assert pool.held_bytes == 2 * 64 * 2**20
    assert pool.has(range(14))
    assert not pool.has([14])


def test_only_what_is_made_ahead_takes_its_time() -> None:
    def beside(size_bytes: int) -> HeldSlab:
        made.append(size_bytes)
        return HeldSlab(size_bytes)

    made: list[int] = []
    pool = HostPool(1000 * 2**20, 9 * 2**20, HeldSlab, allocate_beside=beside)
    pool.prepare([0])
    assert not made
    pool.reserve(1)
    joined(pool)
    assert made == [64 * 2**20]


def test_pinning_beside_steps_leaves_them_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    told, clock = [], iter(range(0, 1000, 3))
    monkeypatch.setattr(cuda_copies, "_pin", lambda page, slab: told.append(f"pin {page.nbytes}"))
    monkeypatch.setattr(cuda_copies, "sleep", lambda seconds: told.append(f"sleep {seconds}"))
    monkeypatch.setattr(cuda_copies, "perf_counter", lambda: next(clock))
    PinnedSlab(torch.zeros(5), 60, beside=True)
    assert told == ["pin 20", "sleep 3"] * 3
    told.clear()
    PinnedSlab(torch.zeros(5), 60)
    assert told == ["pin 20"] * 3


def test_what_can_not_be_made_ahead_is_refused_when_it_is_needed() -> None:
    def refuse(size_bytes: int) -> HeldSlab:
        raise MemoryError

    pool = HostPool(1000 * 2**20, 9 * 2**20, refuse)
    pool.reserve(2**30)
    joined(pool)
    assert pool.held_bytes == 0
    with pytest.raises(NoRoom, match="no memory for parked chats"):
        pool.prepare([0])


def joined(pool: HostPool) -> None:
    assert pool._reserving
    pool._reserving.join()
