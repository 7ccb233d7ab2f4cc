"""Which tiles, rings and matrix units a quantised product may use. Every choice gives the same bits; speed differs."""

from itertools import pairwise
from typing import NamedTuple

from parkway.backends.cuda.launch import has_warpgroups
from parkway.backends.cuda.quantised_pack import BAND_ROWS, LAYOUTS, TILE_COLUMNS

MAX_ROWS = 64
"""Of x, that multiply a quantised matrix as it is; more multiply what is decoded of it."""
MAX_THREADS = 512
FEW_ROWS = 8
FEW_THREADS = 768
MAX_SPLITS = 8
ENOUGH_WARPS = 3072
"""With a band each: what it takes to keep a large GPU busy while each of them waits for what it has just asked for. As
many again would make products of gate and up two, which many rows then multiply one after the other."""
SHARED_BYTES = 227 * 1024
PITCH_BYTES = TILE_COLUMNS * 2 + 16
_BARRIERS = 16
"""Bytes of a slot of a ring that bulk copies fill."""
_LEAST_WINDOW = 2


class QuantConfig(NamedTuple):
    """Bands of 8 outputs that a warp owns, warps side by side on the same columns, tiles of their rings.

    four_warps: 1 if four warps share one instruction of the matrix unit, as only Hopper can. serial: 1 if a warp walks
    all splits of the columns, one after the other; else each split has warps of its own. If there are two matrices,
    half of a warp's bands are of each; a warp with one band has a partner. window: 0, or of how many tiles' columns the
    activations of each split are kept in shared memory, for all warps of the block; only for few rows.
    """

    bands: int
    group: int
    depth: int
    four_warps: int = 0
    serial: int = 0
    window: int = 0


_FEW = (QuantConfig(2, 2, 3), QuantConfig(2, 1, 2), QuantConfig(1, 1, 3), QuantConfig(2, 4, 3))
_FEW_BULK = (
    *(QuantConfig(2, group, depth, window=16) for group, depth in ((3, 2), (12, 2), (12, 3), (3, 3), (6, 4), (2, 4))),
    QuantConfig(2, 12, 2, window=4),
    *(QuantConfig(1, group, depth, window=16) for group, depth in ((4, 3), (6, 3), (12, 2))),
    *(QuantConfig(4, group, depth, window=16) for group, depth in ((6, 2), (6, 3), (2, 3), (1, 4))),
    *(QuantConfig(bands, group, depth, window=4) for bands, group, depth in ((2, 2, 4), (2, 2, 3), (1, 4, 3))),
    *_FEW[:2],
)
"""Of Hopper GPUs, which have bulk copies. A short window leaves room for the next kernel, which begins to fetch."""
_SOME = (
    QuantConfig(2, 2, 3),
    QuantConfig(2, 4, 2),
    QuantConfig(1, 2, 3),
    QuantConfig(4, 2, 2),
    QuantConfig(2, 2, 2),
    QuantConfig(2, 1, 2),
    QuantConfig(2, 4, 3, 1),
    QuantConfig(2, 4, 3, 0, 1),
)
_MORE = (
    QuantConfig(2, 4, 2),
    QuantConfig(2, 8, 2, 0, 1),
    QuantConfig(2, 4, 3, 1, 1),
    QuantConfig(2, 8, 3, 1, 1),
    QuantConfig(2, 12, 3, 1, 1),
)
_COUNTS = (1, 2, 4, 8, 16, 32, 64)
_PARTS = (1, 2, 4, 8)


def splits(rows: int, columns: int, matrices: int = 1) -> int:
    """Into how many parts the sums over the columns are cut: a constant of the shape, as their order is.

    Few rows are not enough work at once unless several warps share them; each has two tiles at least.
    """
    bands, tiles = -(-rows // BAND_ROWS) * matrices, -(-columns // TILE_COLUMNS)
    count = 1
    while count < MAX_SPLITS and count * bands < ENOUGH_WARPS and tiles >= 4 * count:
        count *= 2
    return count


def split_columns(columns: int, count: int) -> list[slice]:
    """The columns of each split."""
    tiles = -(-columns // TILE_COLUMNS)
    ends = [min(tiles * i // count * TILE_COLUMNS, columns) for i in range(count + 1)]
    return [slice(first, end) for first, end in pairwise(ends)]


def row_tile(rows: int) -> int:
    """For so many rows a block has room."""
    return next(count for count in _COUNTS if rows <= count)


def candidates(rows: int, type_name: str, matrices: int, parts: int) -> list[QuantConfig]:
    """Configurations worth timing for up to `rows` rows; the first is a good one without timing.

    `matrices`: how many multiply the rows at once (two if gated); `parts`: splits of their columns.
    """
    few = _FEW_BULK if has_warpgroups() else _FEW
    table = few if rows <= FEW_ROWS else _SOME if rows <= 16 else _MORE
    return [config for config in table if fits(config, rows, type_name, matrices, parts)]


def every_candidate(type_name: str, matrices: int, parts: int) -> list[QuantConfig]:
    """All that `candidates` may ever name."""
    return list(dict.fromkeys(config for rows in _COUNTS for config in candidates(rows, type_name, matrices, parts)))


def fits(config: QuantConfig, rows: int, type_name: str, matrices: int, parts: int) -> bool:
    """Whether the GPU can compute so many rows with it."""
    if rows > MAX_ROWS or (config.four_warps and not (has_warpgroups() and rows > 4)):
        return False
    if config.window and rows > FEW_ROWS:
        return False
    if threads(config, matrices, parts) > _bound(config):
        return False
    return shared_bytes(config, rows, type_name, matrices, parts, min(config.window, _LEAST_WINDOW)) <= SHARED_BYTES


def _bound(config: QuantConfig) -> int:
    """Threads of a block, at most; a warp with many bands needs more registers."""
    return FEW_THREADS if config.window and config.bands <= 2 else MAX_THREADS


def walkers(config: QuantConfig, matrices: int, parts: int) -> int:
    """Groups of warps of a block."""
    return (1 if config.serial else parts) * (matrices if config.bands == 1 else 1)


def threads(config: QuantConfig, matrices: int, parts: int) -> int:
    """Of a block."""
    return 32 * config.group * walkers(config, matrices, parts)


def blocks(config: QuantConfig, rows: int, matrices: int) -> int:
    """Of the grid, for matrices of so many rows."""
    bands = config.group * max(1, config.bands // matrices)
    return -(-rows // (BAND_ROWS * bands))


def window(config: QuantConfig, rows: int, type_name: str, matrices: int, parts: int, tiles: int) -> int:
    """Tiles of activations that are kept for each split, of a matrix `tiles` wide: all if there is room."""
    most = min(config.window, -(-tiles // parts))
    while most > _LEAST_WINDOW and shared_bytes(config, rows, type_name, matrices, parts, most) > SHARED_BYTES:
        most -= 1
    return most


def shared_bytes(config: QuantConfig, rows: int, type_name: str, matrices: int, parts: int, window: int = 0) -> int:
    """Of a block: activations and rings of its warps, or afterwards their totals."""
    groups, count, kind = walkers(config, matrices, parts), row_tile(rows), LAYOUTS[type_name]
    warps = groups * config.group
    slot = config.bands * kind.tile_bytes
    if config.window:
        slot += _BARRIERS
        activations = parts * window * (count * PITCH_BYTES + _BARRIERS)
    else:
        activations = groups * config.depth * TILE_COLUMNS * count * 2
    totals = warps * -(-config.bands // 2) * 16 * max(8, count) * 4
    return max(activations + warps * config.depth * slot, totals)


def line(config: QuantConfig, rows: int, type_name: str) -> str:
    """What is compiled behind quantised.cu."""
    count = row_tile(rows)
    if config.window:
        return entry("Product", f"multiply_few<{type_name}, {config.bands}, {count}>", _bound(config))
    unit = f"{'FourWarps' if config.four_warps else 'OneWarp'}<{count}>"
    serial = "true" if config.serial else "false"
    arguments = f"{type_name}, {config.bands}, {count}, {config.group}, {config.depth}, {serial}, {unit}"
    return entry("Product", f"multiply_rows<{arguments}>", _most_threads(config, count, type_name))


def _most_threads(config: QuantConfig, rows: int, type_name: str) -> int:
    """Of a block of any product that has room for so many rows; the fewer, the more registers each may have."""
    fitting = [
        threads(config, matrices, parts)
        for matrices in (1, 2)
        for parts in _PARTS
        if shared_bytes(config, rows, type_name, matrices, parts) <= SHARED_BYTES
    ]
    return max(count for count in fitting if count <= MAX_THREADS)


def entry(arguments: str, function: str, most_threads: int) -> str:
    """A kernel that calls `function` on a struct, in blocks of at most so many threads."""
    head = f'extern "C" __global__ void __launch_bounds__({most_threads}, 1) kernel'
    return f"{head}(const __grid_constant__ {arguments} p) {{ {function}(p); }}"


def lines(type_name: str) -> list[str]:
    """All that `line` may be of the candidates."""
    return list(
        dict.fromkeys(
            line(config, rows, type_name)
            for rows in _COUNTS
            for matrices in (1, 2)
            for parts in _PARTS
            for config in candidates(rows, type_name, matrices, parts)
        )
    )
