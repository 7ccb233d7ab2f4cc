"""Which experts each row goes through, with which weights, and the rows sorted by expert: on the device, no number of
which the host knows.

A row's choice and weights are worked out lane by lane and in the order of choice, so that they do not depend on how
many rows a program has. A place is where a (row, choice) pair lies when pairs are sorted by expert, then by row. A tile
is some neighbouring places of one expert; their list is as long as it can ever be, and nobody reads behind its count.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from parkway.backends.cuda.experts_config import FEW_ROWS
from parkway.backends.cuda.launch import wait

_ALONE = 2048
"""Logits that one program routes quicker than several, of which two launches are needed."""
_SHORT_BLOCK, _BLOCK = 8, 32
"""Rows of a program otherwise, where they are few and where they are many."""
_LEAST = -3.0e38
"""Below every logit: NaN and -inf are taken for this, so that every row has its number of different experts."""
NONE = tl.constexpr(-(1 << 31))
"""Below every logit's integer."""


@dataclass(frozen=True, slots=True)
class Routes:
    """int32 and fp32 on the device.

    experts, places [rows, chosen]; weights fp32 [rows, chosen]; row_of [rows * chosen], the row of a place; tiles
    [most, 3]: expert, first place, how many; count [1] of tiles.
    """

    experts: torch.Tensor
    places: torch.Tensor
    weights: torch.Tensor
    row_of: torch.Tensor
    tiles: torch.Tensor
    count: torch.Tensor


@triton.jit
def _lane_sums(values, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Sums of values [ROWS, LANES] over lanes, [ROWS]: neighbours first, in one fixed tree."""
    for i in tl.static_range(LANES.bit_length() - 1):
        left, right = tl.split(tl.reshape(values, (ROWS, LANES >> i + 1, 2)))
        values = left + right
    return tl.reshape(values, (ROWS,))


@triton.jit
def _rising(bits):
    """A float's bits as an integer that rises with it, and back again: a warp finds its largest in one instruction."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _choose(
    logits_ptr, row, rows, ROWS: tl.constexpr, COUNT: tl.constexpr, LANES: tl.constexpr, CHOSEN: tl.constexpr,
    OF_ALL: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """Of each row and expert: 0, or which choice of the row it is, counted from 1; and its weight."""
    lane = tl.arange(0, LANES)[None, :]
    real = (row < rows)[:, None] & (lane < COUNT)
    logits = tl.load(logits_ptr + row[:, None] * COUNT + lane, mask=real, other=LEAST)
    logits = tl.where(logits > LEAST, logits, LEAST)
    rising = _rising(tl.where(logits == 0.0, 0.0, logits).to(tl.int32, bitcast=True))  # -0 and 0 are equal
    left = tl.where(lane < COUNT, rising, NONE)
    order = tl.zeros((ROWS, LANES), tl.int32)
    total = tl.zeros((ROWS,), tl.float32)
    top = _rising(tl.max(left, 1)).to(tl.float32, bitcast=True)
    for c in tl.static_range(CHOSEN):
        best = tl.max(left, 1)
        at = tl.min(tl.where(left == best[:, None], lane, LANES), 1)
        taken = lane == at[:, None]
        order = tl.where(taken, c + 1, order)
        left = tl.where(taken, NONE, left)
        total += tl.exp(_rising(best).to(tl.float32, bitcast=True) - top)
    powers = tl.exp(logits - top[:, None])
    if OF_ALL:
        total = _lane_sums(tl.where(lane < COUNT, powers, 0.0), ROWS, LANES)
    return tl.where(row[:, None] < rows, order, 0), powers / total[:, None]


@triton.jit
def _store_places(
    order, first, places_ptr, row_of_ptr, row, LANES: tl.constexpr, CHOSEN: tl.constexpr
):  # fmt: skip
    """Places of the chosen experts of some rows, given where each expert's first of them lies, [LANES]."""
    some = order > 0
    ones = some.to(tl.int32)
    place = first[None, :] + tl.cumsum(ones, 0) - ones
    tl.store(places_ptr + row[:, None] * CHOSEN + order - 1, place, mask=some)
    tl.store(row_of_ptr + place, tl.broadcast_to(row[:, None], place.shape), mask=some)


@triton.jit
def _list_tiles(held, first, tiles_ptr, count_ptr, LANES: tl.constexpr, TILE: tl.constexpr):
    """Cuts each expert's places, of which it has `held` [LANES] from `first` on, into tiles."""
    cut = (held + TILE - 1) // TILE
    before = tl.cumsum(cut, 0) - cut
    for i in range(tl.max(cut, 0)):
        some = i < cut
        tile_ptr = tiles_ptr + 3 * (before + i)
        tl.store(tile_ptr, tl.arange(0, LANES), mask=some)
        tl.store(tile_ptr + 1, first + i * TILE, mask=some)
        tl.store(tile_ptr + 2, tl.minimum(held - i * TILE, TILE), mask=some)
    tl.store(count_ptr, tl.sum(cut, 0))


@triton.jit(do_not_specialize=["rows"])
def _route_few(
    logits_ptr, experts_ptr, weights_ptr, places_ptr, row_of_ptr, tiles_ptr, count_ptr, rows, ROWS: tl.constexpr,
    COUNT: tl.constexpr, LANES: tl.constexpr, CHOSEN: tl.constexpr, OF_ALL: tl.constexpr, LEAST: tl.constexpr,
    TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: everything."""
    row = tl.arange(0, ROWS)
    wait(PDL)
    order, weights = _choose(logits_ptr, row, rows, ROWS, COUNT, LANES, CHOSEN, OF_ALL, LEAST)
    lane = tl.arange(0, LANES)
    at = row[:, None] * CHOSEN + order - 1
    tl.store(experts_ptr + at, tl.broadcast_to(lane[None, :], order.shape), mask=order > 0)
    tl.store(weights_ptr + at, weights, mask=order > 0)
    held = tl.sum((order > 0).to(tl.int32), 0)
    first = tl.cumsum(held, 0) - held
    _store_places(order, first, places_ptr, row_of_ptr, row, LANES, CHOSEN)
    _list_tiles(held, first, tiles_ptr, count_ptr, LANES, TILE)


@triton.jit(do_not_specialize=["rows"])
def _route_block(
    logits_ptr, experts_ptr, weights_ptr, held_ptr, rows, ROWS: tl.constexpr, COUNT: tl.constexpr,
    LANES: tl.constexpr, CHOSEN: tl.constexpr, OF_ALL: tl.constexpr, LEAST: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The choices of a block of rows, and how many of them each expert has."""
    block = tl.program_id(0)
    row = block * ROWS + tl.arange(0, ROWS)
    wait(PDL)
    order, weights = _choose(logits_ptr, row, rows, ROWS, COUNT, LANES, CHOSEN, OF_ALL, LEAST)
    lane = tl.arange(0, LANES)
    at = row[:, None] * CHOSEN + order - 1
    tl.store(experts_ptr + at, tl.broadcast_to(lane[None, :], order.shape), mask=order > 0)
    tl.store(weights_ptr + at, weights, mask=order > 0)
    tl.store(held_ptr + block * LANES + lane, tl.sum((order > 0).to(tl.int32), 0))


@triton.jit(do_not_specialize=["rows", "blocks"])
def _place_block(
    experts_ptr, held_ptr, places_ptr, row_of_ptr, tiles_ptr, count_ptr, rows, blocks, ROWS: tl.constexpr,
    LANES: tl.constexpr, CHOSEN: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The places of a block of rows; the first program also lists the tiles."""
    block = tl.program_id(0)
    row = block * ROWS + tl.arange(0, ROWS)
    lane = tl.arange(0, LANES)
    wait(PDL)
    held = tl.zeros((LANES,), tl.int32)
    earlier = tl.zeros((LANES,), tl.int32)
    for first_block in range(0, blocks, ROWS):
        other = first_block + tl.arange(0, ROWS)[:, None]
        counts = tl.load(held_ptr + other * LANES + lane[None, :], mask=other < blocks, other=0)
        held += tl.sum(counts, 0)
        earlier += tl.sum(tl.where(other < block, counts, 0), 0)
    first = tl.cumsum(held, 0) - held
    order = tl.zeros((ROWS, LANES), tl.int32)
    for c in tl.static_range(CHOSEN):
        expert = tl.load(experts_ptr + row * CHOSEN + c, mask=row < rows, other=-1)
        order = tl.where(lane[None, :] == expert[:, None], c + 1, order)
    _store_places(order, first + earlier, places_ptr, row_of_ptr, row, LANES, CHOSEN)
    if block == 0:
        _list_tiles(held, first, tiles_ptr, count_ptr, LANES, TILE)


def route(logits: torch.Tensor, chosen: int, *, of_all: bool, tile: int, pdl: int = 0) -> Routes:
    """Routes rows by fp32 logits [rows, experts]; `of_all`: weights are shares of all experts' powers.

    `tile`: most places of a tile.
    """
    rows, count = logits.shape
    made = _room(logits, chosen, most_tiles(rows, count, chosen, tile))
    lanes, height = triton.next_power_of_2(count), triton.next_power_of_2(rows)
    how = {"OF_ALL": of_all, "LEAST": _LEAST, "PDL": pdl, "enable_fp_fusion": False, "launch_pdl": bool(pdl)}
    if height * lanes <= _ALONE:
        _route_few[(1,)](
            *(logits, made.experts, made.weights, made.places, made.row_of, made.tiles, made.count, rows),
            *(height, count, lanes, chosen),
            TILE=tile,
            **how,
            num_warps=_warps(height * lanes, 4),
        )
        return made
    block, each = (_BLOCK, 32) if rows > FEW_ROWS else (_SHORT_BLOCK, 4)
    blocks, warps = triton.cdiv(rows, block), _warps(block * lanes, each)
    held = torch.empty((blocks, lanes), dtype=torch.int32, device=logits.device)
    _route_block[(blocks,)](
        *(logits, made.experts, made.weights, held, rows, block, count, lanes, chosen), **how, num_warps=warps
    )
    options: dict[str, Any] = {"num_warps": warps, "launch_pdl": bool(pdl)}
    _place_block[(blocks,)](
        *(made.experts, held, made.places, made.row_of, made.tiles, made.count, rows, blocks),
        *(block, lanes, chosen, tile, pdl),
        **options,
    )
    return made


def most_tiles(rows: int, count: int, chosen: int, tile: int) -> int:
    """Tiles that there can be, whatever is chosen."""
    pairs = rows * chosen
    return min(pairs, count if rows <= tile else count + pairs // tile)


def _room(logits: torch.Tensor, chosen: int, tiles: int) -> Routes:
    rows = len(logits)
    whole: dict[str, Any] = {"dtype": torch.int32, "device": logits.device}
    return Routes(
        experts=torch.empty((rows, chosen), **whole),
        places=torch.empty((rows, chosen), **whole),
        weights=torch.empty((rows, chosen), dtype=torch.float32, device=logits.device),
        row_of=torch.empty(rows * chosen, **whole),
        tiles=torch.empty((tiles, 3), **whole),
        count=torch.empty(1, **whole),
    )


def _warps(values: int, each: int) -> int:
    """So many that a thread has about so many values."""
    return min(max(values // (32 * each), 1), 16)
