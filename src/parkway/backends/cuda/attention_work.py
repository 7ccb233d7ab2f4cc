"""What attention's programs are to do in a step, as lists that the host writes. No tensors, no kernels.

A chunk is some consecutive rows of one chat. Chunks of few tokens are cut into tiles, and these into splits of the
positions that they see, an item each, unless there are tiles enough without; longer ones into tiles only. Which list a
chunk is in, and whether its tiles are split, changes no bit of its rows: what does not fit the scratch of `few` goes to
`many`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SPLIT = 256
"""Positions that are summed up on their own before they are merged: a constant of the contract, bits depend on it."""

NEVER_WHOLE = 1 << 16
"""Of `Sizes.abreast`: only tiles of one split are one item."""

FEW_TOKENS = 16
"""A chunk of more tokens has tiles enough without splits side by side."""

Int32s = npt.NDArray[np.int32]


class Chunks(NamedTuple):
    """In the order of their rows, int32 [chunks] each: first row, tokens, slot, position of the first token."""

    row: Int32s
    tokens: Int32s
    slot: Int32s
    start: Int32s


class Lists(NamedTuple):
    """Where a step's lists are written, int32. Nobody reads what lies behind a count.

    few [items, 8]: first row, tokens, slot, first position, first split, which of the tile's items that is, how many it
    has (an item that is the only one has all splits, others one each), first row of scratch. many [tiles, 5]: first
    row, tokens, slot, first position, the end of what is written of the chat. Counts are [1].
    """

    few: Int32s
    few_count: Int32s
    many: Int32s
    many_count: Int32s


@dataclass(frozen=True, slots=True)
class Sizes:
    """How lists are cut and what they hold.

    `few_tokens`, `many_tokens`: of a tile. `partials`: rows of scratch. `items`, `tiles`: lengths of `few` and `many`.
    Chunks of up to `short` tokens go to `few`. A tile whose share of the splits is 1 / `abreast` or less is one item.
    """

    few_tokens: int
    many_tokens: int
    partials: int
    items: int
    tiles: int
    split: int
    window: int
    short: int
    abreast: int

    @classmethod
    def of(
        cls,
        rows: int,
        chunks: int,
        positions: int,
        *,
        few_tokens: int,
        many_tokens: int,
        most_partials: int,
        split: int = SPLIT,
        window: int = 0,
        short: int = FEW_TOKENS,
        abreast: int = NEVER_WHOLE,
    ) -> "Sizes":
        """Enough for any step of so many rows in so many chunks, of chats with up to `positions` positions."""
        chunks = min(chunks, rows)
        deepest = -(-positions // split)
        if window:
            deepest = min(deepest, (window + few_tokens - 3) // split + 2)
        partials = min(rows * deepest, most_partials)
        tiles = (rows - chunks) // many_tokens + chunks
        return cls(few_tokens, many_tokens, partials, partials + rows, tiles, split, window, short, abreast)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of `Lists`, by name."""
        return {"few": (self.items, 8), "few_count": (1,), "many": (self.tiles, 5), "many_count": (1,)}


def build(sizes: Sizes, chunks: Chunks, rows: int, lists: Lists) -> tuple[int, int]:
    """Writes a step's lists and returns their lengths. Rows of the batch of `rows` that no chunk has get zeros."""
    short = chunks.tokens <= sizes.short
    cut = _cut(sizes, chunks, short)
    if len(cut.ends) and int(cut.ends[-1]) > sizes.partials:
        cut, too_many = _fitting(cut, chunks, sizes.partials)
        short = short & ~too_many
    few = _write_items(cut, sizes.split, lists.few)
    used = int(chunks.row[-1] + chunks.tokens[-1]) if len(chunks.row) else 0
    few += _write_unused(used, rows, sizes.few_tokens, lists.few[few:])
    many = 0 if short.all() else _write_tiles(_some(chunks, ~short), sizes.many_tokens, lists.many)
    lists.few_count[0], lists.many_count[0] = few, many
    return few, many


class _Cut(NamedTuple):
    """Tiles of `few`, and of each its first split, how many items it has, its rows of scratch, and where these end."""

    tiles: Chunks
    first: Int32s
    items: Int32s
    scratch: Int32s
    ends: Int32s

    @classmethod
    def of(cls, tiles: Chunks, first: Int32s, items: Int32s) -> "_Cut":
        scratch = items * tiles.tokens
        scratch[items == 1] = 0
        return cls(tiles, first, items, scratch, np.cumsum(scratch, dtype=np.int32))


def _cut(sizes: Sizes, chunks: Chunks, which: npt.NDArray[np.bool_]) -> _Cut:
    tiles = _tiles(_some(chunks, which), sizes.few_tokens)
    first = np.zeros_like(tiles.start)
    if sizes.window:
        first = np.maximum(tiles.start - (sizes.window - 1), 0) // sizes.split
    splits = (tiles.start + tiles.tokens - 1) // sizes.split + 1 - first
    splits[splits * sizes.abreast <= splits.sum()] = 1
    return _Cut.of(tiles, first, splits)


def _some(chunks: Chunks, which: npt.NDArray[np.bool_]) -> Chunks:
    return chunks if which.all() else Chunks(*(column[which] for column in chunks))


def _tiles(whole: Chunks, tokens: int) -> Chunks:
    """Chunks cut into tiles of `tokens` tokens and a rest: chunks themselves."""
    counts = -(-whole.tokens // tokens)
    tiles = int(counts.sum())
    if tiles == len(counts):
        return whole
    offset = (np.arange(tiles, dtype=np.int32) - np.repeat(np.cumsum(counts) - counts, counts)) * tokens
    row, left, slot, start = (np.repeat(column, counts) for column in whole)
    return Chunks(row + offset, np.minimum(left - offset, tokens), slot, start + offset)


def _fitting(cut: _Cut, chunks: Chunks, partials: int) -> tuple[_Cut, npt.NDArray[np.bool_]]:
    """What is left without the chunks of which a tile lies behind the end of scratch, and which chunks these are."""
    chunk = np.searchsorted(chunks.row, cut.tiles.row, side="right") - 1
    over = np.zeros(len(chunks.row), np.bool_)
    over[chunk[(cut.ends > partials) & (cut.items > 1)]] = True
    kept = ~over[chunk]
    return _Cut.of(_some(cut.tiles, kept), cut.first[kept], cut.items[kept]), over


def _write_items(cut: _Cut, split: int, written: Int32s) -> int:
    """The longest first, so that none begins when all others are done."""
    tiles, first, items, scratch, ends = cut
    shortness = first * split - tiles.start - tiles.tokens
    shortness[items > 1] = -split
    columns = np.array([*tiles, first, items, items, ends - scratch])[:, np.argsort(shortness, kind="stable")]
    counts = columns[6]
    after = np.cumsum(counts, dtype=np.int32)
    columns[5] -= after  # less than 0 by as many items as come before
    made = written[: after[-1] if len(after) else 0]
    made[:] = np.repeat(columns.T, counts, axis=0)
    nth = made[:, 5]
    nth += np.arange(len(made), dtype=np.int32)
    made[:, 4] += nth
    return len(made)


def _write_unused(used: int, rows: int, tokens: int, items: Int32s) -> int:
    """Rows that nobody has, as tiles that see no position."""
    row = np.arange(used, rows, tokens, dtype=np.int32)
    made = items[: len(row)]
    made[:] = 0, 0, 0, 0, 0, 0, 1, 0
    made[:, 0] = row
    made[:, 1] = np.minimum(rows - row, tokens)
    made[:, 3] = -made[:, 1]
    return len(row)


def _write_tiles(chunks: Chunks, tokens: int, written: Int32s) -> int:
    """The tiles of a chat one after the other, as they read the same; the longest chats and tiles first."""
    ends = chunks.start + chunks.tokens
    order = np.argsort(ends, kind="stable")
    chunks = Chunks(*(column[order] for column in chunks))
    tiles = _tiles(chunks, tokens)
    made = written[: len(tiles.row)]
    made[::-1, :4] = np.stack(tiles, axis=1)
    made[::-1, 4] = np.repeat(ends[order], -(-chunks.tokens // tokens))
    return len(made)
