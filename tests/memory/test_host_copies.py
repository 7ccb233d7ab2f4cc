"""Copies as the engine drives them, on each device: bytes, landings, memory, failures.

What waits for what on a GPU is in test_copies.py.
"""

import ctypes as C
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace

import psutil
import pytest

from parkway.errors import NoRoom
from parkway.memory.copies import Copies
from parkway.memory.host_copies import HostCopies
from parkway.plan.copies import Copy, Owner
from tests.memory.rigs import PAGES, CpuRig, Rig, TorchRig, filled, held

PARK, SAVE_AHEAD, RESTORE = Owner


@pytest.fixture(params=[CpuRig, TorchRig])
def rig(request: pytest.FixtureRequest) -> Rig:
    make: Callable[[], Rig] = request.param
    return filled(make())


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "at once"])
def test_what_was_parked_comes_back_and_all_else_is_unchanged(rig: Rig, beside: bool) -> None:
    before, copies = held(rig), rig.copies(2**20, beside=beside)
    assert copies.pages >= 100
    copies.submit(Copy(1, PARK, (0, 5), (7, 2)))
    copies.submit(Copy(2, SAVE_AHEAD, (3,), (0,)))
    copies.drain()
    assert held(rig) == before
    for page in range(PAGES):
        rig.write(page, bytes([page]) * rig.page_bytes)
    copies.submit(Copy(3, RESTORE, (0, 7, 2), (1, 4, 6)))
    copies.drain()
    kept = {page: bytes([page]) * rig.page_bytes for page in (0, 2, 3, 5, 7)}
    expected = kept | {1: before[3], 4: before[0], 6: before[5]}
    assert held(rig) == [expected[page] for page in range(PAGES)]


def test_copies_land_while_others_are_submitted(rig: Rig) -> None:
    """Parks and restores in a row, several in flight: each is reported once, and every page gets its bytes back."""
    before, copies = held(rig), rig.copies(2**20)
    open_copies: dict[int, Copy] = {}
    for turn in range(500):
        page = turn % PAGES
        while any(page in (*copy.sources, *copy.targets) for copy in open_copies.values()):
            copies.wait()
            take(copies.landed(), open_copies)
        parks = turn // PAGES % 2 == 0
        copy = Copy(turn, PARK, (page,), (page,)) if parks else Copy(turn, RESTORE, (page,), (page,))
        open_copies[turn] = copy
        if not parks:
            rig.write(page, bytes(rig.page_bytes))
        copies.submit(copy)
        copies.advance()
        take(copies.landed(), open_copies)
    take(copies.drain(), open_copies)
    assert not open_copies
    for page in range(PAGES):
        copies.submit(Copy(page, RESTORE, (page,), (page,)))
    copies.drain()
    assert held(rig) == before


def take(landed: list[Copy], open_copies: dict[int, Copy]) -> None:
    for copy in landed:
        assert open_copies.pop(copy.id) is copy


def test_at_once_means_landed_when_submit_returns(rig: Rig) -> None:
    before, copies = held(rig), rig.copies(2**20, beside=False)
    park, restore = Copy(1, PARK, (0, 1, 2), (0, 1, 2)), Copy(2, RESTORE, (0, 1, 2), (5, 6, 7))
    copies.submit(park)
    rig.write(0, bytes(rig.page_bytes))
    copies.submit(restore)
    assert held(rig)[5:] == before[:3]
    copies.wait()
    assert copies.landed() == [park, restore]
    assert copies.landed() == copies.drain() == []


def test_less_than_a_page_is_no_page(rig: Rig) -> None:
    copies = rig.copies(rig.page_bytes - 1)
    assert (copies.pages, copies.held_bytes) == (0, 0)
    copies.advance()
    assert copies.landed() == copies.drain() == []


def test_pages_that_are_used_again_and_again_take_no_memory(rig: Rig) -> None:
    """10,000 parks and restores of random pages to random places, checked against what they must hold."""
    chance, copies = Random(7), rig.copies(PAGES * rig.page_bytes * 2)
    pool: list[bytes] = held(rig)
    host: dict[int, bytes] = {}
    process, resident = psutil.Process(), 0
    for turn in range(10_000):
        page = chance.randrange(PAGES)
        if turn % 2 == 0:
            place = chance.randrange(PAGES)
            copies.submit(Copy(turn, PARK, (page,), (place,)))
            host[place] = pool[page]
        else:
            place = chance.choice(list(host))
            copies.submit(Copy(turn, RESTORE, (place,), (page,)))
            pool[page] = host[place]
        assert [copy.id for copy in copies.drain()] == [turn]
        if turn == 2000:
            gc.collect()
            resident = process.memory_info().rss
    gc.collect()
    assert held(rig) == pool
    assert process.memory_info().rss - resident < 2**22


def test_memory_that_cannot_be_had_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = filled(CpuRig())
    copies, park = rig.copies(2**30), Copy(1, PARK, (0,), (0,))
    with monkeypatch.context() as patch:
        patch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=2**20))
        with pytest.raises(NoRoom, match=r"^no memory for parked chats: 64 MiB can't be had, 0 MiB are held$"):
            copies.submit(park)
    assert (copies.drain(), copies.held_bytes) == ([], 0)
    copies.submit(park)
    assert copies.drain() == [park]


class Gate:
    """memmove that waits until it is opened, and fails if it is told to."""

    def __init__(self) -> None:
        self._memmove = C.memmove
        self._opened = threading.Event()
        self.failure: Exception | None = None
        self.open = self._opened.set

    def __call__(self, target: int, source: int, size_bytes: int) -> None:
        self._opened.wait()
        if self.failure is not None:
            raise self.failure
        self._memmove(target, source, size_bytes)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def gated(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> CpuRig:
    rig = CpuRig()
    filled(rig)
    monkeypatch.setattr(C, "memmove", gate)
    return rig


def test_what_is_in_flight_has_not_landed(gated: CpuRig, gate: Gate) -> None:
    copies, park = gated.copies(2**20), Copy(1, PARK, (0, 1), (0, 1))
    copies.submit(park)
    copies.advance()
    assert copies.landed() == []
    gate.open()
    copies.wait()
    assert copies.landed() == [park]


def test_drain_waits_for_what_is_in_flight(gated: CpuRig, gate: Gate) -> None:
    copies = gated.copies(2**20)
    open_copies = [Copy(1, PARK, (0, 1), (0, 1)), Copy(2, PARK, (2,), (2,)), Copy(3, PARK, (), ())]
    for copy in open_copies:
        copies.submit(copy)
    copies.advance()
    opener = threading.Timer(0.01, gate.open)
    opener.start()
    assert copies.drain() == open_copies
    opener.join()


@pytest.mark.parametrize("ask", [HostCopies.landed, HostCopies.wait, HostCopies.drain])
def test_a_copy_that_fails_is_told_to_whoever_asks(gated: CpuRig, gate: Gate, ask: Callable[[Copies], object]) -> None:
    copies = gated.copies(2**20)
    copies.submit(Copy(1, PARK, (0, 1), (0, 1)))
    copies.advance()
    gate.failure = OSError("a bus that is no more")
    gate.open()
    _let_the_thread_catch_up(copies)
    with pytest.raises(
        RuntimeError, match=r"^a copy of KV pages failed, so its chats can't go on: a bus that is no more$"
    ) as raised:
        ask(copies)
    assert raised.value.__cause__ is gate.failure


def test_nothing_lands_after_a_failure(gated: CpuRig, gate: Gate) -> None:
    copies = gated.copies(2**20, beside=False)
    gate.failure = OSError()
    gate.open()
    with pytest.raises(RuntimeError, match=r"OSError$"):
        copies.submit(Copy(1, PARK, (0,), (0,)))
    gate.failure = None
    with pytest.raises(RuntimeError, match=r"OSError$"):
        copies.submit(Copy(2, PARK, (1,), (1,)))


def _let_the_thread_catch_up(copies: HostCopies) -> None:
    end = copies._engine._outward.record()
    with pytest.raises(RuntimeError):
        end.wait()


def test_the_thread_ends_with_the_copies_and_the_pool_goes_after_what_is_queued(gated: CpuRig, gate: Gate) -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "copies"]

    before, copies, memory = threads(), gated.copies(2**20), weakref.ref(gated.store.memory)
    thread = next(thread for thread in threads() if thread not in before)
    copies.submit(Copy(1, PARK, (0, 1), (0, 1)))
    copies.advance()
    del copies, gated.store
    gc.collect()
    assert thread.is_alive()
    assert memory() is not None
    gate.open()
    thread.join()
    assert memory() is None


def test_only_what_is_for_the_gpu_needs_torch() -> None:
    program = "import parkway.memory.cpu_copies, parkway.memory.host_copies, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
