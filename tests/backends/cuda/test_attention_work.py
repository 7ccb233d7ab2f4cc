"""Attention's lists: every row once, every split that it sees once, scratch never shared, sizes never exceeded."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from parkway.backends.cuda.attention_work import FEW_TOKENS, NEVER_WHOLE, Chunks, Lists, Sizes, build

POSITIONS = 2000

chats = some.lists(some.tuples(some.integers(0, POSITIONS - 80), some.integers(1, 80)), max_size=12)


def chunks_of(drawn: Sequence[tuple[int, int]]) -> Chunks:
    """Chunks of (first position, tokens), one behind the other, in slots from the last to the first."""
    columns = np.array(drawn, np.int32).reshape(-1, 2)
    start, tokens = columns[:, 0], columns[:, 1]
    slot = np.arange(len(drawn), dtype=np.int32)[::-1]
    return Chunks(np.cumsum(tokens, dtype=np.int32) - tokens, tokens, slot, start)


def built(sizes: Sizes, chunks: Chunks, rows: int) -> tuple[list[list[int]], list[list[int]]]:
    """The items of both lists. What lies around them must stay as it was."""
    lists = Lists(*(np.full(shape, -7, np.int32) for shape in sizes.shapes.values()))
    few, many = build(sizes, chunks, rows, lists)
    assert (lists.few_count[0], lists.many_count[0]) == (few, many)
    assert (lists.few[few:] == -7).all()
    assert (lists.many[many:] == -7).all()
    return lists.few[:few].tolist(), lists.many[:many].tolist()


def rows_of(chunks: Chunks) -> dict[int, tuple[int, int]]:
    """Slot and position of each row."""
    return {
        int(row) + i: (int(slot), int(start) + i)
        for row, tokens, slot, start in zip(*chunks, strict=True)
        for i in range(tokens)
    }


@given(
    drawn=chats,
    unused=some.integers(0, 9),
    window=some.sampled_from([0, 1, 64, 300]),
    partials=some.integers(1, 600),
    abreast=some.sampled_from([NEVER_WHOLE, 20, 4, 1]),
)
def test_each_row_is_somebodys_once_with_every_split_that_it_sees(
    drawn: list[tuple[int, int]], unused: int, window: int, partials: int, abreast: int
) -> None:
    chunks = chunks_of(drawn)
    owned = rows_of(chunks)
    rows = len(owned) + unused
    cut = {"few_tokens": 5, "many_tokens": 32, "split": 128, "window": window}
    sizes = Sizes.of(rows, len(drawn), POSITIONS, most_partials=partials, abreast=abreast, **cut)
    few, many = built(sizes, chunks, rows)
    splits: dict[int, list[int]] = {}
    for row, tokens, slot, start, split, nth, count, _ in few:
        assert 1 <= tokens <= 5
        for i in range(tokens):
            if row + i in owned:
                assert owned[row + i] == (slot, start + i)
            else:
                assert start + i < 0  # sees nothing
            seen = splits.setdefault(row + i, [])
            assert len(seen) == nth < count
            seen += [split] if count > 1 else range(split, (start + tokens - 1) // 128 + 1)
    for row, seen in splits.items():
        if row in owned:
            position = owned[row][1]
            lowest = max(0, position - window + 1) // 128 if window else 0
            assert seen == list(range(seen[0], seen[-1] + 1))
            assert seen[0] <= lowest
            assert seen[-1] >= position // 128
    listed = Counter(dict.fromkeys(splits, 1))
    last = {int(slot): int(start + tokens) for _, tokens, slot, start in zip(*chunks, strict=True)}
    for row, tokens, slot, start, written in many:
        assert 1 <= tokens <= 32
        assert written == last[slot]
        assert [owned[row + i] for i in range(tokens)] == [(slot, start + i) for i in range(tokens)]
        listed.update(range(row, row + tokens))
    assert listed == Counter(range(rows))


@given(drawn=chats, partials=some.integers(1, 600), abreast=some.sampled_from([NEVER_WHOLE, 20, 4]))
def test_scratch_is_nobody_elses_and_never_exceeded(drawn: list[tuple[int, int]], partials: int, abreast: int) -> None:
    chunks = chunks_of(drawn)
    rows = int(chunks.tokens.sum())
    cut = {"few_tokens": 4, "many_tokens": 32, "split": 128}
    sizes = Sizes.of(rows, len(drawn), POSITIONS, most_partials=partials, abreast=abreast, **cut)
    few, _ = built(sizes, chunks, rows)
    used: list[int] = []
    for _, tokens, _, _, _, nth, count, partial in few:
        if count > 1:
            used += range(partial + nth * tokens, partial + (nth + 1) * tokens)
    assert len(set(used)) == len(used)
    assert max(used, default=-1) < sizes.partials


@pytest.mark.parametrize("window", [0, 200])
@pytest.mark.parametrize("tokens", [1, 7, FEW_TOKENS])
def test_sizes_hold_the_worst_step(tokens: int, window: int) -> None:
    chunks = chunks_of([(POSITIONS - tokens, tokens)] * 6)
    rows = 6 * tokens
    sizes = Sizes.of(rows, 6, POSITIONS, few_tokens=3, many_tokens=32, most_partials=10**6, split=128, window=window)
    _, many = built(sizes, chunks, rows)
    assert not many
    none = Sizes.of(rows, 6, POSITIONS, few_tokens=3, many_tokens=32, most_partials=1, split=128, window=window)
    assert len(built(none, chunks, rows)[1]) == 6


def test_long_chunks_are_cut_into_tiles_and_short_ones_into_splits() -> None:
    chunks = chunks_of([(0, FEW_TOKENS + 1), (300, 1), (100, 2)])
    sizes = Sizes.of(20, 3, POSITIONS, few_tokens=4, many_tokens=8, most_partials=100, split=256)
    few, many = built(sizes, chunks, 20)
    assert few == [[17, 1, 1, 300, 0, 0, 2, 0], [17, 1, 1, 300, 1, 1, 2, 0], [18, 2, 0, 100, 0, 0, 1, 2]]
    assert many == [[16, 1, 2, 16, 17], [8, 8, 2, 8, 17], [0, 8, 2, 0, 17]]


def test_tiles_of_one_chat_lie_together_and_the_longest_chat_comes_first() -> None:
    chunks = chunks_of([(0, 20), (500, 20), (90, 20)])
    sizes = Sizes.of(60, 3, POSITIONS, few_tokens=4, many_tokens=16, most_partials=100)
    many = built(sizes, chunks, 60)[1]
    assert [item[3:] for item in many] == [[516, 520], [500, 520], [106, 110], [90, 110], [16, 20], [0, 20]]


def test_a_tile_with_no_more_than_its_share_of_the_splits_is_one_item_and_the_longest_items_come_first() -> None:
    chunks = chunks_of([(10, 1), (300, 1), (1100, 1), (600, 2)])
    sizes = Sizes.of(5, 4, POSITIONS, few_tokens=4, many_tokens=8, most_partials=100, abreast=3)
    few = [[item[3], *item[4:7]] for item in built(sizes, chunks, 5)[0]]
    assert few == [[600, 0, 0, 1], [300, 0, 0, 1], *([1100, split, split, 5] for split in range(5)), [10, 0, 0, 1]]
    alone = built(sizes, chunks_of([(600, 2)]), 2)[0]
    assert [item[4:7] for item in alone] == [[0, 0, 3], [1, 1, 3], [2, 2, 3]]


def test_a_window_needs_no_split_before_it() -> None:
    chunks = chunks_of([(1500, 1)])
    sizes = Sizes.of(1, 1, POSITIONS, few_tokens=4, many_tokens=8, most_partials=100, split=256, window=256)
    assert sizes.partials == 3  # four tokens at the worst place would have three splits
    assert [item[4:] for item in built(sizes, chunks, 1)[0]] == [[4, 0, 2, 0], [5, 1, 2, 0]]


def test_short_is_a_size() -> None:
    chunks = chunks_of([(0, 40), (0, 1)])
    cut = {"few_tokens": 4, "many_tokens": 8, "most_partials": 100}
    assert not built(Sizes.of(41, 2, POSITIONS, short=40, **cut), chunks, 41)[1]
    assert not built(Sizes.of(41, 2, POSITIONS, short=0, **cut), chunks, 41)[0]


def test_a_step_without_chunks_is_all_zeros() -> None:
    sizes = Sizes.of(5, 5, POSITIONS, few_tokens=4, many_tokens=8, most_partials=100)
    few, many = built(sizes, chunks_of([]), 5)
    assert few == [[0, 4, 0, -4, 0, 0, 1, 0], [4, 1, 0, -1, 0, 0, 1, 0]]
    assert not many
