"""How much of the pool fits, and what is said where nothing does."""

from typing import Any

import pytest

from parkway.backends import Attention, Rings
from parkway.config import EngineSettings
from parkway.errors import NoRoom
from parkway.runner.fit import RingUse, Room, checkpoints_for, room_for, room_with_rings, told

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
    assert checkpoints_for(pages, pool_bytes, unit_bytes=100, free_bytes=free_bytes) == count


def test_more_checkpoints_than_that_share_are_had_where_they_fit() -> None:
    assert checkpoints_for(100, 800, unit_bytes=100, free_bytes=10**9, least=8) == 8
    assert checkpoints_for(100, 800, unit_bytes=100, free_bytes=350, least=8) == 3


WINDOWED, WHOLE = (Attention(0, 1, 1.0, None, window=window) for window in (512, 0))
"""Gemma 3 270M's layers."""


def layers(*kinds: Attention) -> list[Attention]:
    return [Attention(layer, 1, 1.0, None, window=kind.window) for layer, kind in enumerate(kinds)]


GEMMA = layers(*[*[WINDOWED] * 5, WHOLE] * 3)
RINGED = tuple(layer for layer in range(18) if layer % 6 != 5)


def room_of(ctx_size: int, **how: Any) -> Room:
    given: dict[str, Any] = {
        "rows": 256,
        "chunk_tokens": None,
        "use": "saving",
        "free_bytes": 10**9,
        "layer_bytes": 1 << 16,
        "ctx_train": 32768,
    }
    slots, attention = how.pop("slots", 4), how.pop("attention", GEMMA)
    settings = EngineSettings(ctx_size=ctx_size, parallel=slots)
    return room_with_rings(settings, attention, **given | how)


def test_rings_come_with_two_checkpoints_for_each_slot() -> None:
    room = room_of(16384)
    assert room == Room(16384, 16384, Rings(RINGED, window=512, chunk=256), checkpoints=8)
    assert room.rings
    assert (room.rings.pages, room.rings.kept) == (12, 8)
    assert 2 * (4 * 12 + 8 * 8) <= 16384 // 64, "all of it takes half of what the pages of these layers would"


@pytest.mark.parametrize(
    ("ctx_size", "rings", "checkpoints"),
    [
        (64 * (2 * (48 + 64) - 1), False, 2),
        (64 * 2 * (48 + 64), True, 8),
        (64 * 1000, True, 8),
    ],
)
def test_rings_are_there_where_they_halve_what_the_layers_take(ctx_size: int, rings: bool, checkpoints: int) -> None:
    room = room_of(ctx_size)
    assert (room.rings is not None, room.checkpoints) == (rings, checkpoints)


@pytest.mark.parametrize(
    ("rows", "chunk_tokens", "chunk"), [(256, None, 256), (4096, None, 1024), (1000, None, 512), (256, 7, 7)]
)
def test_a_ring_has_room_for_a_chunk_from_one_checkpoint_to_the_next(
    rows: int, chunk_tokens: int | None, chunk: int
) -> None:
    rings = room_of(1 << 20, rows=rows, chunk_tokens=chunk_tokens).rings
    assert rings
    assert rings.chunk == chunk


def test_layers_without_a_window_have_none_and_one_layer_has_pages_in_the_pool() -> None:
    assert room_of(1 << 20, attention=layers(WHOLE, WHOLE)).rings is None
    assert room_of(1 << 20, attention=[]).rings is None
    mistral = room_of(1 << 20, attention=layers(WINDOWED, WINDOWED, WINDOWED)).rings
    assert mistral
    assert mistral.layers == (1, 2)


@pytest.mark.parametrize(("use", "free_bytes", "rings"), [("fitting", 10**9, True), ("fitting", 10**8, False),
                                                          ("never", 10**9, False)])  # fmt: skip
def test_rings_for_a_verification_are_there_where_they_fit(use: RingUse, free_bytes: int, rings: bool) -> None:
    room = room_of(256, use=use, free_bytes=free_bytes)
    assert (room.rings is not None, room.tokens) == (rings, 256)


@pytest.mark.parametrize("free_bytes", [10**7, 5 * 10**7, 10**8, 3 * 10**8, 10**9, 4 * 10**9])
@pytest.mark.parametrize("slots", [1, 4, 16])
def test_what_fits_is_never_less_with_rings(free_bytes: int, slots: int) -> None:
    without, room = (room_of(0, free_bytes=free_bytes, slots=slots, use=use) for use in ("never", "saving"))
    assert room.tokens >= without.tokens
    if room.rings:
        ringed = 15 * (slots * room.rings.pages + room.checkpoints * room.rings.kept)
        assert (room.tokens // 64 * 3 + ringed) << 16 <= free_bytes
        assert room.tokens > without.tokens or room.tokens == slots * 32768


def test_sizes_are_told_as_people_read_them() -> None:
    line = told(**{"weights": 3 * 2**30, "KV pool of 64 tokens": 2**19, "states": 0})
    assert line == "weights 3.0 GiB, KV pool of 64 tokens 0.5 MiB"
