"""How much of the pool fits, and what is said where nothing does."""

import pytest

from parkway.config import EngineSettings
from parkway.errors import NoRoom
from parkway.runner.fit import Room, checkpoints_for, room_for, told

AUTO = EngineSettings(ctx_size=0, parallel=3)


def test_a_size_that_is_given_is_taken_whatever_fits() -> None:
    given = EngineSettings(ctx_size=300)
    assert room_for(given, free_bytes=0, page_bytes=1000, ctx_train=128) == Room(300, 300)


def test_what_fits_is_taken_in_whole_pages_and_no_chat_is_longer_than_the_model_knows() -> None:
    assert room_for(AUTO, free_bytes=5999, page_bytes=1000, ctx_train=128) == Room(320, 128)
    assert room_for(AUTO, free_bytes=1000, page_bytes=1000, ctx_train=128) == Room(64, 64)


def test_no_more_is_taken_than_every_slot_could_use() -> None:
    assert room_for(AUTO, free_bytes=10**9, page_bytes=1000, ctx_train=128) == Room(384, 128)


def test_where_not_even_a_page_fits_it_is_said_by_how_much_and_what_to_change() -> None:
    with pytest.raises(NoRoom, match=r"--ctx-size 0: 2 MiB are missing .*; take a smaller model"):
        room_for(AUTO, free_bytes=2**20, page_bytes=3 * 2**20, ctx_train=128)


@pytest.mark.parametrize(
    ("pages", "pool_bytes", "free_bytes", "count"),
    [
        (100, 800 * 7, 10**9, 7),  # an eighth of the pool
        (10**9, 100 << 30, 10**12, (1 << 30) // 100),  # but no more than that
        (100, 800, 10**9, 2),  # and two at least
        (1, 800, 10**9, 1),  # one for each page
        (100, 800, 199, 1),  # where they fit
        (100, 800, -5, 0),
    ],
)
def test_checkpoints_take_a_share_of_the_pools_bytes(pages: int, pool_bytes: int, free_bytes: int, count: int) -> None:
    assert checkpoints_for(pages, pool_bytes, state_bytes=100, free_bytes=free_bytes) == count


def test_sizes_are_told_as_people_read_them() -> None:
    line = told(**{"weights": 3 * 2**30, "KV pool of 64 tokens": 2**19, "states": 0})
    assert line == "weights 3.0 GiB, KV pool of 64 tokens 0.5 MiB"
