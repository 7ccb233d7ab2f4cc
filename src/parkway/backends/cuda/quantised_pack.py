"""A GGUF tensor's blocks → the tiles that quants.h reads. Nothing is decoded: bits move, and no value changes.

A tile is 8 rows x 256 columns: the codes of its first half (128 columns), those of its second half, scales. A lane's 32
values of half a tile are 8 steps x (columns 2c, 2c + 1, 2c + 8, 2c + 9) of its row; lanes are counted 4 * row + c, and
their words lie side by side. Rows and columns are filled up with zeros to whole tiles. A matrix is its bands of 8 rows,
one behind the other, each its tiles in order: a run of rows that begins at a multiple of 8 is a run of bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from parkway.errors import Unsupported

BAND_ROWS = 8
TILE_COLUMNS = 256
SLICE_VALUES = 1 << 23
"""So many values are repacked at a time: what bounds the room that it takes."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows of a tensor, taken apart: quants uint8 [rows, columns] and bytes uint8 [rows, half tiles, n] of scales.

    `whole`: bytes [rows, tiles, m] that hold for both halves of a tile.
    """

    quants: torch.Tensor
    scales: torch.Tensor
    whole: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """A type's blocks in a file, and its tiles."""

    block_columns: int
    block_bytes: int
    tile_bytes: int
    take_apart: Callable[[torch.Tensor], Blocks]
    words: Callable[[torch.Tensor], list[torch.Tensor]]
    """A lane's values uint8 [..., lane, 32] of half a tile → parts int32 [..., lane, n], one behind the other."""
    halves: tuple[int, ...] = (0,)
    """Where a block has numbers of 16 bits: its scale, and what all its minima are multiples of."""


def layout(name: str, type_name: str, columns: int) -> Layout:
    """Raises Unsupported naming the tensor."""
    if type_name not in LAYOUTS:
        raise Unsupported(f"tensor {name} has type {type_name}; quantised ones of a GPU are {', '.join(LAYOUTS)}")
    found = LAYOUTS[type_name]
    if columns % found.block_columns:
        raise Unsupported(
            f"tensor {name} has rows of {columns} values; {type_name} needs a multiple of {found.block_columns}"
        )
    return found


def packed(name: str, type_name: str, raw: npt.NDArray[np.uint8], columns: int, device: torch.device) -> torch.Tensor:
    """Raw rows uint8 [rows, row_bytes] → uint8 [bands, tiles, tile_bytes] on the device. Raises Unsupported."""
    kind = layout(name, type_name, columns)
    bands, tiles = -(-len(raw) // BAND_ROWS), -(-columns // TILE_COLUMNS)
    made = torch.empty((bands, tiles, kind.tile_bytes), dtype=torch.uint8, device=device)
    step = max(1, SLICE_VALUES // (tiles * TILE_COLUMNS * BAND_ROWS))
    for band in range(0, bands, step):
        some = raw[band * BAND_ROWS : (band + step) * BAND_ROWS].copy()  # torch takes no read-only memory
        made[band : band + step] = _tiles(kind, torch.from_numpy(some).to(device), tiles)
    return made


def _tiles(kind: Layout, raw: torch.Tensor, tiles: int) -> torch.Tensor:
    """Some bands' raw rows → uint8 [bands, tiles, tile_bytes]."""
    row_bytes = tiles * TILE_COLUMNS // kind.block_columns * kind.block_bytes
    filled = raw.new_zeros((-(-len(raw) // BAND_ROWS) * BAND_ROWS, row_bytes))
    filled[: len(raw), : raw.shape[1]] = raw
    blocks = kind.take_apart(filled.view(len(filled), -1, kind.block_bytes))
    parts = kind.words(_by_lane(blocks.quants))
    bands = len(filled) // BAND_ROWS
    by_half = [part.contiguous().view(torch.uint8).reshape(bands, tiles, 2, -1) for part in parts]
    quants = torch.cat(by_half, dim=3).reshape(bands, tiles, -1)
    scales = [_by_tile(blocks.scales.reshape(len(filled), tiles, -1))]
    if blocks.whole is not None:
        scales.append(_by_tile(blocks.whole))
    return torch.cat([quants, *scales], dim=2)


def _by_lane(quants: torch.Tensor) -> torch.Tensor:
    """[rows, columns] → [bands, tiles, halves, lanes, 32]."""
    split = quants.view(-1, BAND_ROWS, quants.shape[1] // TILE_COLUMNS, 2, 8, 2, 4, 2)  # … half, step, eight, c, pair
    return split.permute(0, 2, 3, 1, 6, 4, 5, 7).reshape(len(split), split.shape[2], 2, 32, 32)


def _by_tile(scales: torch.Tensor) -> torch.Tensor:
    """[rows, tiles, n] → [bands, tiles, 8 * n]."""
    split = scales.view(-1, BAND_ROWS, *scales.shape[1:])
    return split.transpose(1, 2).reshape(len(split), scales.shape[1], -1)


def _nibble_words(values: torch.Tensor) -> list[torch.Tensor]:
    """Eight values a word: neighbours in its halves, pair after pair from the lowest bits on."""
    each = values.to(torch.int64).unflatten(-1, (4, 8))
    places = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28], device=values.device)
    return [_wrapped((each << places).sum(-1))]


def _six_bit_words(values: torch.Tensor) -> list[torch.Tensor]:
    """Sixteen values in three words. Value 5w + i of word w at bit 5 + 2w + 6i, round the corner; two bits of value 15
    at 3 + 2w."""
    each = values.to(torch.int64).unflatten(-1, (2, 16))
    places = torch.arange(5, device=values.device) * 6
    words = []
    for w in range(3):
        fields = (each[..., 5 * w : 5 * w + 5] << (places + (5 + 2 * w))).sum(-1)
        words.append(_wrapped(fields | (each[..., 15] >> 2 * w & 3) << 3 + 2 * w))
    both = torch.stack(words, dim=-1).flatten(-2)
    return [both[..., :4], both[..., 4:]]


def _named_words(values: torch.Tensor) -> list[torch.Tensor]:
    """Eight values a word, from the lowest bits on."""
    each = values.to(torch.int64).unflatten(-1, (4, 8))
    return [_wrapped((each << torch.arange(0, 32, 4, device=values.device)).sum(-1))]


def _four_words(values: torch.Tensor) -> list[torch.Tensor]:
    """Eight values a word: neighbours in its halves; of each pair three bits of magnitude and, further up, a sign."""
    each = values.to(torch.int64).unflatten(-1, (4, 4, 2))  # … word, pair, neighbour
    pairs, neighbours = torch.arange(4, device=values.device)[:, None], torch.tensor([0, 16], device=values.device)
    signs = torch.tensor([[14], [12], [15], [13]], device=values.device)
    return [_wrapped(((each & 7) << (3 * pairs + neighbours) | (each >> 3) << (signs + neighbours)).sum((-1, -2)))]


def _byte_words(values: torch.Tensor) -> list[torch.Tensor]:
    words = values.contiguous().view(torch.int32)
    return [words[..., :4], words[..., 4:]]


def _wrapped(words: torch.Tensor) -> torch.Tensor:
    """Bits past the 32nd come in again at the lowest."""
    return (words & 0xFFFFFFFF | words >> 32).to(torch.int32)


def _nibbles(halves: torch.Tensor) -> torch.Tensor:
    """Bytes [rows, blocks, m, n] → [rows, columns]: all low halves of n bytes, then all high ones."""
    return torch.stack([halves & 15, halves >> 4], dim=3).flatten(1)


def _bits(lying: torch.Tensor, width: int) -> torch.Tensor:
    """Bytes [rows, blocks, m, n] → [rows, columns]: fields of `width` bits, the lowest of n bytes, then the next."""
    return torch.stack([lying >> at & (1 << width) - 1 for at in range(0, 8, width)], dim=3).flatten(1)


def _q8_0(blocks: torch.Tensor) -> Blocks:
    return Blocks(blocks[..., 2:].flatten(1) ^ 128, blocks[..., :2])


def _q4_0(blocks: torch.Tensor) -> Blocks:
    return Blocks(_nibbles(blocks[..., None, 2:]), blocks[..., :2])


def _q4_1(blocks: torch.Tensor) -> Blocks:
    return Blocks(_nibbles(blocks[..., None, 4:]), blocks[..., :4])


def _q5_0(blocks: torch.Tensor) -> Blocks:
    return Blocks(_nibbles(blocks[..., None, 6:]) | _fifth_bits(blocks[..., 2:6]), blocks[..., :2])


def _q5_1(blocks: torch.Tensor) -> Blocks:
    return Blocks(_nibbles(blocks[..., None, 8:]) | _fifth_bits(blocks[..., 4:8]), blocks[..., :4])


def _fifth_bits(lying: torch.Tensor) -> torch.Tensor:
    """Of every value a bit, from the lowest of the first byte on."""
    return _bits(lying[..., None], 1) << 4


def _q2_k(blocks: torch.Tensor) -> Blocks:
    """The four-bit scales and minima of sixteen groups become bytes: of each half eight scales and eight minima."""
    both = blocks[..., :16].unflatten(-1, (2, 8))
    return Blocks(
        _bits(blocks[..., 16:80].unflatten(-1, (2, 32)), 2), torch.cat([both & 15, both >> 4], -1), blocks[..., 80:]
    )


def _q3_k(blocks: torch.Tensor) -> Blocks:
    """A quant and 4. The six-bit scales become signed bytes."""
    quants = _bits(blocks[..., 32:96].unflatten(-1, (2, 32)), 2) | _bits(blocks[..., None, :32], 1) << 2
    low = torch.cat([blocks[..., 96:104] & 15, blocks[..., 96:104] >> 4], dim=-1)
    high = torch.cat([blocks[..., 104:108] >> at & 3 for at in (0, 2, 4, 6)], dim=-1)
    return Blocks(quants, (low | high << 4) - 32, blocks[..., 108:])


def _iq4_xs(blocks: torch.Tensor) -> Blocks:
    """The six-bit scales of eight groups become signed bytes of sixteen."""
    low = torch.stack([blocks[..., 4:8] & 15, blocks[..., 4:8] >> 4], dim=-1).flatten(-2)
    high = torch.stack([blocks[..., 2:4] >> at & 3 for at in (0, 2, 4, 6)], dim=-1).flatten(-2)
    scales = ((low | high << 4) - 32).repeat_interleave(2, dim=-1)
    return Blocks(_nibbles(blocks[..., 8:].unflatten(-1, (8, 16))), scales, blocks[..., :2])


def _mxfp4(blocks: torch.Tensor) -> Blocks:
    """The exponent of a scale 2^(e - 128) becomes that number as a bf16."""
    exponent = blocks[..., :1].to(torch.int16)
    scale = torch.where(exponent < 2, 32 << exponent, exponent - 1 << 7)
    return Blocks(_nibbles(blocks[..., None, 1:]), scale.view(torch.uint8))


def _q4_k(blocks: torch.Tensor) -> Blocks:
    """Of each group 2^8 * d and 8 * d - m as bf16: what quants.h makes weights of."""
    scales, minima = _small(blocks[..., 4:16])
    whole = blocks[..., :4].contiguous().view(torch.float16).float()
    d, m = whole[..., :1] * scales, whole[..., 1:] * minima
    lines = torch.stack([256 * d, 8 * d - m], dim=-1).to(torch.bfloat16)
    return Blocks(_nibbles(blocks[..., 16:].unflatten(-1, (4, 32))), lines.flatten(-2).view(torch.uint8))


def _q5_k(blocks: torch.Tensor) -> Blocks:
    """Of each half four bytes of scales and four of minima."""
    both = torch.stack([each.unflatten(-1, (2, 4)) for each in _small(blocks[..., 4:16])], dim=-2)
    quants = _nibbles(blocks[..., 48:].unflatten(-1, (4, 32))) | _bits(blocks[..., None, 16:48], 1) << 4
    return Blocks(quants, both, blocks[..., :4])


def _small(lying: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The six-bit scales and minima of eight groups as bytes."""
    low, least, rest = lying[..., :4], lying[..., 4:8], lying[..., 8:]
    scales = torch.cat([low & 63, rest & 15 | low >> 2 & 48], dim=-1)
    return scales, torch.cat([least & 63, rest >> 4 | least >> 2 & 48], dim=-1)


def _q6_k(blocks: torch.Tensor) -> Blocks:
    low, high = blocks[..., :128].unflatten(-1, (2, 64)), blocks[..., 128:192].unflatten(-1, (2, 32))
    return Blocks(_nibbles(low) | _bits(high, 2) << 4, blocks[..., 192:208], blocks[..., 208:])


LAYOUTS = {
    "Q4_0": Layout(32, 18, 1152, _q4_0, _nibble_words),
    "Q4_1": Layout(32, 20, 1280, _q4_1, _nibble_words, (0, 2)),
    "Q5_0": Layout(32, 22, 1664, _q5_0, _six_bit_words),
    "Q5_1": Layout(32, 24, 1792, _q5_1, _six_bit_words, (0, 2)),
    "Q8_0": Layout(32, 34, 2176, _q8_0, _byte_words),
    "Q2_K": Layout(256, 84, 1312, _q2_k, _nibble_words, (80, 82)),
    "Q3_K": Layout(256, 110, 1168, _q3_k, _nibble_words, (108,)),
    "Q4_K": Layout(256, 144, 1280, _q4_k, _nibble_words, (0, 2)),
    "Q5_K": Layout(256, 176, 1696, _q5_k, _six_bit_words, (0, 2)),
    "Q6_K": Layout(256, 210, 1680, _q6_k, _six_bit_words, (208,)),
    "IQ4_NL": Layout(32, 18, 1152, _q4_0, _named_words),
    "IQ4_XS": Layout(256, 136, 1168, _iq4_xs, _named_words),
    "MXFP4": Layout(32, 17, 1152, _mxfp4, _four_words, ()),
}
"""A weight takes tile_bytes / 256 bits on the device."""
