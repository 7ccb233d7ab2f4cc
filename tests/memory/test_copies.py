"""Copies between the pools: the bytes, who waits for whom on the device, how many begin in a step, what has landed."""

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import pytest
import torch

from parkway.backends import KvShape
from parkway.errors import NoRoom
from parkway.memory.copy_engine import CopyEngine
from parkway.memory.cuda_copies import PinnedSlab, host_pool
from parkway.memory.cuda_page_store import CudaPageStore
from parkway.memory.host_pool import HostPool
from parkway.plan.copies import Copy, Owner
from tests.memory.worlds import HeldWorld, World, worlds

PAGES = 8
PARK, SAVE_AHEAD, RESTORE = Owner


class Rig:
    """A pool of 8 pages, each full of its number, host pages of 100 and more, and copies between them."""

    def __init__(self, world: World, step_pages: int = PAGES) -> None:
        self.world = world
        self.store = CudaPageStore(PAGES * 64, KvShape(layers=2, kv_heads=1, head_dim=16), world.device)
        self.host = host_pool(self.store, 2**28)
        self.host.prepare(range(PAGES))
        for page in range(PAGES):
            self.store.page(page).fill_(page)
            self.host.page(page).fill_(100 + page)
        self.copies = CopyEngine(
            self.store,
            self.host,
            outward=world.lane(),
            inward=world.lane(),
            step_bytes=step_pages * self.store.page_bytes,
        )
        world.settle()

    def write(self, page: int, value: int) -> None:
        """A kernel that fills a page, and the event behind it."""
        self.world.kernel(lambda: self.store.page(page).fill_(value))
        self.copies.after(self.world.mark())

    def submit(self, owner: Owner, sources: tuple[int, ...], targets: tuple[int, ...], id: int = 1) -> Copy:
        copy = Copy(id, owner, sources, targets)
        self.copies.submit(copy)
        return copy

    def settle(self) -> tuple[list[float], list[float]]:
        """What every page of the device and of the host is full of in the end."""
        self.world.settle()
        return [_filling(self.store.page(i)) for i in range(PAGES)], [_filling(self.host.page(i)) for i in range(PAGES)]


def _filling(page: torch.Tensor) -> float:
    value = page.flatten()[0].item()
    assert (page == value).all(), "a page is torn"
    return value


@pytest.fixture(params=list(worlds().values()), ids=list(worlds()))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    make: Callable[[], World] = request.param
    made = make()
    yield made
    made.settle()


DEVICE, HOST = [0, 1, 2, 3, 4, 5, 6, 7], [100, 101, 102, 103, 104, 105, 106, 107]


def test_the_target_has_the_bytes_and_all_else_is_unchanged(world: World) -> None:
    rig = Rig(world)
    rig.submit(PARK, (3, 0), (5, 1))
    rig.submit(SAVE_AHEAD, (7,), (0,))
    rig.submit(RESTORE, (6, 2), (4, 6))
    rig.copies.advance()
    device, host = rig.settle()
    assert device == [0, 1, 2, 3, 106, 5, 102, 7]
    assert host == [7, 0, 102, 103, 104, 3, 106, 107]


def test_a_page_is_copied_to_the_last_byte(world: World) -> None:
    rig = Rig(world)
    page = torch.arange(rig.store.page_bytes, dtype=torch.int64).to(torch.uint8).view(torch.bfloat16)
    rig.store.page(2).copy_(page.view(rig.store.page(2).shape))
    world.settle()
    rig.submit(PARK, (2,), (3,))
    rig.copies.drain()
    rig.submit(RESTORE, (3,), (5,))
    rig.copies.drain()
    for copied in (rig.host.page(3), rig.store.page(5).cpu()):
        assert torch.equal(copied.flatten().view(torch.uint8), page.view(torch.uint8))


def test_a_page_is_parked_after_the_kernel_that_wrote_it(world: World) -> None:
    rig = Rig(world)
    rig.write(3, 50)
    rig.submit(PARK, (3,), (0,))
    rig.copies.advance()
    assert rig.settle()[1] == [50, *HOST[1:]]


def test_a_page_is_restored_after_the_last_step_that_used_it(world: World) -> None:
    """A step in flight may still write a page that its chat has given back."""
    rig = Rig(world)
    rig.write(3, 50)
    rig.submit(RESTORE, (0,), (3,))
    rig.copies.advance()
    assert rig.settle()[0][3] == 100


def test_so_many_pages_begin_in_a_step(world: World) -> None:
    rig = Rig(world, step_pages=2)
    rig.submit(PARK, (0, 1, 2), (0, 1, 2))
    rig.submit(RESTORE, (6, 7), (6, 7), id=2)
    landed = []
    for _ in range(3):
        rig.copies.advance()
        device, host = rig.settle()
        landed.append([copy.id for copy in rig.copies.landed()])
    assert landed == [[], [1], [2]]
    assert (device[6:], host[:3]) == ([106, 107], [0, 1, 2])


def test_a_device_that_is_behind_gets_no_more_than_two_steps_of_pages() -> None:
    """Whoever adds to a queue of the device that is full waits until there is room."""
    rig = Rig(HeldWorld(lambda queues: queues[0]), step_pages=2)
    copies = [rig.submit(PARK, (0, 1, 2), (0, 1, 2)), rig.submit(RESTORE, (4, 5, 6, 7), (4, 5, 6, 7), id=2)]
    for _ in range(5):
        rig.copies.advance()
    device, host = rig.settle()
    assert (device[4:], host[:3]) == ([104, 5, 6, 7], [0, 1, 2])
    rig.copies.advance()
    rig.copies.advance()
    assert rig.settle()[0][4:] == [104, 105, 106, 107]
    assert rig.copies.landed() == copies


def test_a_step_begins_a_page_however_large_it_is() -> None:
    rig = Rig(HeldWorld(lambda queues: queues[0]), step_pages=0)
    rig.submit(PARK, (0, 1), (0, 1))
    rig.copies.advance()
    assert rig.settle()[1] == [0, *HOST[1:]]


def test_a_copy_has_landed_when_the_device_has_done_it_and_is_told_once() -> None:
    rig = Rig(HeldWorld(lambda queues: queues[-1]))
    copy = rig.submit(PARK, (1,), (2,))
    assert rig.copies.landed() == []
    rig.copies.advance()
    assert rig.copies.landed() == []
    rig.settle()
    assert rig.copies.landed() == [copy]
    assert rig.copies.landed() == []


def test_waiting_begins_everything_and_ends_when_one_has_landed(world: World) -> None:
    rig = Rig(world, step_pages=1)
    rig.write(0, 50)
    open_copies = [rig.submit(PARK, (0, 1, 2), (0, 1, 2)), rig.submit(RESTORE, (5,), (5,), id=2)]
    landed: list[Copy] = []
    while len(landed) < 2:
        rig.copies.wait()
        now = rig.copies.landed()
        assert now
        landed += now
    assert sorted(landed, key=lambda copy: copy.id) == open_copies
    assert rig.settle() == ([50, 1, 2, 3, 4, 105, 6, 7], [50, 1, 2, *HOST[3:]])


def test_drain_ends_everything(world: World) -> None:
    rig = Rig(world, step_pages=1)
    rig.write(0, 50)
    copies = [rig.submit(PARK, (0, 1, 2), (0, 1, 2)), rig.submit(RESTORE, (5,), (5,)), rig.submit(PARK, (), ())]
    assert rig.copies.drain() == copies
    assert rig.copies.drain() == []
    assert rig.settle() == ([50, 1, 2, 3, 4, 105, 6, 7], [50, 1, 2, *HOST[3:]])


@pytest.mark.parametrize("seed", range(8))
def test_any_order_on_the_device_gives_what_one_queue_would(seed: int) -> None:
    """Random kernels and copies, run in random order, against the same ones done at once, one after the other."""
    chance = Random(seed)
    rig = Rig(HeldWorld(Random(seed + 100).choice), step_pages=1)
    device, host = list(map(float, DEVICE)), list(map(float, HOST))
    pinned, written = set[tuple[str, int]](), set[tuple[str, int]]()
    for step in range(300):
        page, other = chance.sample(range(PAGES), 2)
        owner = chance.choice([*Owner, None])
        if owner is None:  # a kernel that reads a page and writes another
            if ("device", page) in pinned or ("device", other) in written:
                continue
            rig.world.kernel(partial(_absorb, rig.store.page(page), rig.store.page(other)))
            rig.copies.after(rig.world.mark())
            device[page] = (device[page] + device[other]) % 251
            continue
        sources = ("host", host) if owner is RESTORE else ("device", device)
        targets = ("host", host) if owner in (PARK, SAVE_AHEAD) else ("device", device)
        pins = {(sources[0], page), (targets[0], other)}
        if pinned.isdisjoint(pins):
            pinned |= pins
            written.add((targets[0], other))
            rig.submit(owner, (page,), (other,), id=step)
            targets[1][other] = sources[1][page]
        if chance.random() < 0.3:
            rig.copies.advance()
        if chance.random() < 0.1:
            rig.copies.drain()
            pinned.clear()
            written.clear()
    rig.copies.drain()
    assert rig.settle() == (device, host)


def _absorb(page: torch.Tensor, other: torch.Tensor) -> None:
    page.copy_((page.float() + other.float()) % 251)


class Unordered(CopyEngine):
    """Planted: trusts the host's order."""

    def after(self, event: object) -> None:
        pass


@pytest.mark.parametrize(
    "test",
    [
        test_a_page_is_parked_after_the_kernel_that_wrote_it,
        test_a_page_is_restored_after_the_last_step_that_used_it,
        test_any_order_on_the_device_gives_what_one_queue_would,
    ],
)
def test_the_hosts_order_alone_does_not_do(test: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CopyEngine, "after", Unordered.after)
    failed = 0
    for make in worlds().values():
        try:
            test(3) if "seed" in test.__code__.co_varnames else test(make())
        except AssertionError:
            failed += 1
    assert failed


def test_memory_that_cannot_be_had_is_said_and_nothing_is_submitted() -> None:
    world = HeldWorld(lambda queues: queues[0])
    rig = Rig(world)
    host = HostPool(2**30, rig.store.page_bytes, refuse)
    copies = CopyEngine(rig.store, host, outward=world.lane(), inward=world.lane(), step_bytes=1)
    with pytest.raises(NoRoom, match=r"^no memory for parked chats: 64 MiB can't be had, 0 MiB are held$"):
        copies.submit(Copy(1, PARK, (0,), (0,)))
    assert copies.drain() == []


def refuse(size_bytes: int) -> PinnedSlab:
    raise MemoryError
