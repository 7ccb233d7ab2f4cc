"""Adversarial inputs for attention's bit check: chats at all sorts of positions, in a pool where all else is NaN.

Rows stand at the edges of pages and splits, alone, in the few rows of a verification and in long chunks; values have
wide exponents, zeros of either sign and subnormal numbers; one chat's keys and values are NaN.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from parkway.backends.cuda.attention import Config, Configs, Scratch, Work, attention, few_candidates, many_candidates
from parkway.backends.cuda.attention_work import SPLIT, Chunks, Lists, Sizes, build
from parkway.plan.step import PAGE_TOKENS

LAYERS = 2
CHATS = ((1127, 1), (0, 70), (63, 1), (64, 1), (255, 1), (256, 1), (509, 5), (300, 1), (700, 130), (1022, 16))
"""First position and tokens of each chat's chunk."""
STRANGER = 7
FAR = 512
"""The chats go beyond windows of so many positions by more than a split."""
NEED = "attention"


class Shape(NamedTuple):
    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0
    soft_cap: float = 0.0
    sinks: bool = False

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def reached(self) -> "Shape":
        """With a window that hides something from the chats, where it has one. Compilers know multiples of 16."""
        return self._replace(window=min(self.window, FAR + self.window % 16))


@dataclass(frozen=True, slots=True)
class AttentionSubject:
    """One step's attention. q bf16 [rows, heads, head_dim]; chunks as `attention_work` says; sinks float32 [heads].

    abreast: as `attention_work.Sizes` says; if 0, `few`'s tiles of few splits are whole and those of many are not, nor
    is one alone.
    """

    name: str
    candidates: Sequence[Config]
    shape: Shape
    chunks: Chunks
    q: torch.Tensor
    pool: torch.Tensor
    tables: torch.Tensor
    sinks: torch.Tensor
    split: int = SPLIT
    abreast: int = 0

    @property
    def rows(self) -> int:
        return len(self.q)

    def suits(self, config: Config, rows: int) -> bool:
        """Any number of rows may be cut into any tiles."""
        return True

    def output(self, config: Config, rows: slice) -> torch.Tensor:
        """The bits of those rows as int16 [rows, heads, head_dim]; a stranger's are 0."""
        chunks = _within(self.chunks, rows)
        out = self.computed(config, chunks, self.q[rows])
        known = torch.ones(len(out), 1, 1, dtype=torch.int16)
        for row, tokens in zip(*_of_slot(chunks, STRANGER), strict=True):
            known[row : row + tokens] = 0
        return out.view(torch.int16) * known.to(out.device)

    def lists(self, config: Config, chunks: Chunks, rows: int) -> tuple[Sizes, Lists]:
        """All chunks in the list of `config`'s kernel."""
        tokens = config.height // self.shape.group
        positions = self.tables.shape[1] * PAGE_TOKENS
        tiles = int((-(-chunks.tokens // tokens)).sum())
        sizes = Sizes.of(
            rows,
            len(chunks.row),
            positions,
            few_tokens=self.few_config(config).height // self.shape.group,
            many_tokens=tokens,
            most_partials=rows * positions,
            split=self.split,
            window=self.shape.window,
            short=positions if config.apart else 0,
            abreast=self.abreast or tiles + 1,
        )
        lists = Lists(*(np.zeros(length, np.int32) for length in sizes.shapes.values()))
        build(sizes, chunks, rows, lists)
        return sizes, lists

    def few_config(self, config: Config) -> Config:
        """What computes the list for few rows: `config`, or where that is for many, the first that is for few."""
        return config if config.apart else few_candidates(self.shape.group, self.shape.head_dim)[0]

    def computed(self, config: Config, chunks: Chunks, q: torch.Tensor) -> torch.Tensor:
        """bf16 [rows, heads, head_dim], all chunks by the kernel of `config`."""
        shape, device = self.shape, q.device
        sizes, lists = self.lists(config, chunks, len(q))
        return attention(
            q,
            self.pool,
            LAYERS - 1,
            self.tables,
            Work(*(torch.from_numpy(part).to(device) for part in lists)),
            Scratch.allocate(sizes.partials, shape.heads, shape.kv_heads, shape.head_dim, device),
            torch.full_like(q, torch.nan),
            config=Configs(self.few_config(config), config),
            scale=1 / math.sqrt(shape.head_dim),
            window=shape.window,
            soft_cap=shape.soft_cap,
            sinks=self.sinks if shape.sinks else None,
            split=self.split,
        )


def subjects(device: torch.device, seed: int, shapes: Sequence[Shape]) -> list[AttentionSubject]:
    """One for each shape that a model's layers have."""
    return [subject(device, seed, shape) for shape in shapes]


def need(shape: Shape) -> str:
    """A shape as one word of a command line."""
    return " ".join(map(str, (NEED, *shape[:-1], int(shape.sinks))))


def shape_of(need: str) -> Shape | None:
    """The shape that `need` wrote, or None where another kind of need is written."""
    kind, *sizes = need.split(" ")
    if kind != NEED:
        return None
    heads, kv_heads, head_dim, window, soft_cap, sinks = sizes
    return Shape(int(heads), int(kv_heads), int(head_dim), int(window), float(soft_cap), bool(int(sinks)))


def subject(
    device: torch.device,
    seed: int,
    shape: Shape,
    chats: Sequence[tuple[int, int]] = CHATS,
    split: int = SPLIT,
) -> AttentionSubject:
    """Chats with chunks of (first position, tokens), of which number STRANGER is all NaN."""
    chance = torch.Generator(device).manual_seed(seed)
    start, tokens = (np.array(column, np.int32) for column in zip(*chats, strict=True))
    slot = np.arange(len(chats), dtype=np.int32)
    chunks = Chunks(np.cumsum(tokens, dtype=np.int32) - tokens, tokens, slot, start)
    pool, tables = _pages(chance, shape, (start + tokens).tolist())
    q = torch.randn(int(tokens.sum()), shape.heads, shape.head_dim, generator=chance, device=device)
    q *= torch.exp2(torch.randint(-3, 4, (len(q), shape.heads, 1), generator=chance, device=device).float())
    sinks = torch.randn(shape.heads, generator=chance, device=device)
    candidates = few_candidates(shape.group, shape.head_dim) + many_candidates(shape.group, shape.head_dim)
    return AttentionSubject("attention", candidates, shape, chunks, q.to(torch.bfloat16), pool, tables, sinks, split)


def _within(chunks: Chunks, rows: slice) -> Chunks:
    """What is left of chunks if only some rows are in the batch."""
    first = np.maximum(chunks.row, rows.start)
    left = np.minimum(chunks.row + chunks.tokens, rows.stop) - first
    kept = left > 0
    cut = Chunks(first - rows.start, left, chunks.slot, chunks.start + first - chunks.row)
    return Chunks(*(column[kept].astype(np.int32) for column in cut))


def _of_slot(chunks: Chunks, slot: int) -> tuple[list[int], list[int]]:
    here = chunks.slot == slot
    return chunks.row[here].tolist(), chunks.tokens[here].tolist()


def _pages(chance: torch.Generator, shape: Shape, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """A pool in which each chat's positions are written, anywhere, and nothing else; and the tables of pages."""
    counts = [-(-length // PAGE_TOKENS) for length in lengths]
    places = torch.randperm(sum(counts) + 1, generator=chance, device=chance.device)
    lane_counts = (LAYERS, 2, shape.kv_heads, PAGE_TOKENS, shape.head_dim)
    pool = torch.full((len(places), *lane_counts), torch.nan, dtype=torch.bfloat16, device=chance.device)
    tables = torch.full((len(lengths), max(counts)), int(places[-1]), dtype=torch.int32, device=chance.device)
    ends = np.cumsum(counts).tolist()
    for slot, (length, count, end) in enumerate(zip(lengths, counts, ends, strict=True)):
        used = places[end - count : end]
        tables[slot, :count] = used
        if slot == STRANGER:
            continue
        for at, page in enumerate(used.tolist()):
            written = min(PAGE_TOKENS, length - at * PAGE_TOKENS)
            pool[page, -1, 0, :, :written] = _near(chance, (shape.kv_heads, written, shape.head_dim))
            pool[page, -1, 1, :, :written] = _wide(chance, (shape.kv_heads, written, shape.head_dim))
    return pool, tables


def _near(chance: torch.Generator, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=chance, device=chance.device).to(torch.bfloat16)


def _wide(chance: torch.Generator, shape: tuple[int, ...]) -> torch.Tensor:
    """bf16 of either sign: most within 2^-10 … 2^10, some zeros of either sign, some subnormal."""
    made = torch.randn(shape, generator=chance, device=chance.device)
    made *= torch.exp2(torch.randint(-10, 11, shape, generator=chance, device=chance.device).float())
    kind = torch.randint(0, 20, shape, generator=chance, device=chance.device)
    made = torch.where(kind == 0, made.sign() * 0.0, made)
    return torch.where(kind == 1, made * 2.0**-130, made).to(torch.bfloat16)
