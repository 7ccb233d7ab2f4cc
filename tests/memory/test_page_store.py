"""The pool's memory: as many pages as the tokens need, or one sentence."""

from types import SimpleNamespace

import pytest

from parkway.errors import NoRoom
from parkway.memory.page_store import PageStore


@pytest.mark.parametrize(("tokens", "pages"), [(64, 1), (65, 2), (128, 2), (8192, 128)])
def test_pages_are_whole(tokens: int, pages: int) -> None:
    store = PageStore(tokens, 4096)
    assert (store.pages, store.bytes) == (pages, pages * 4096)
    assert store.memory.size_bytes >= store.bytes


def test_pages_can_be_written_to_the_last_byte() -> None:
    store = PageStore(130, 1000)
    store.memory.array()[: store.bytes] = 5
    assert (store.memory.array()[: store.bytes] == 5).all()


def test_pages_lie_one_behind_the_other() -> None:
    store = PageStore(192, 1000)
    assert [store.page(number).address - store.memory.address for number in range(3)] == [0, 1000, 2000]
    assert store.page(1).size_bytes == 1000


def test_a_pool_beyond_the_machines_memory_says_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10 * 2**20))
    with pytest.raises(NoRoom) as raised:
        PageStore(1024, 2**20)
    assert str(raised.value) == "--ctx-size 1024: the KV pool needs 16 MiB, 10 MiB are free; at most 640 tokens fit"
    assert PageStore(640, 2**20).pages == 10


def test_a_pool_that_no_machine_holds_is_refused() -> None:
    with pytest.raises(NoRoom, match=r"^--ctx-size 4611686018427387904: the KV pool needs [\d,]+ MiB, "):
        PageStore(2**62, 2**20)
