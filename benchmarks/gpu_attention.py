"""Attention on the GPU: equal bits, errors, then times beside SDPA, of what is shipped and of what might be instead.

Times are device microseconds of one launch in a captured graph of many, over layers that are larger together than the
caches. Needs a GPU; takes half a minute, most of it compilation: `python -m benchmarks.gpu_attention`.
"""

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from parkway.backends import bit_check
from parkway.backends.cuda import attention as launching
from parkway.backends.cuda.attention import (
    Choices,
    Config,
    Configs,
    Scratch,
    Work,
    attention,
    few_candidates,
    many_candidates,
    side_by_side,
)
from parkway.backends.cuda.attention_subjects import AttentionSubject, Shape, subjects
from parkway.backends.cuda.attention_work import NEVER_WHOLE, Chunks, Lists, Sizes, build
from parkway.backends.cuda.device import DENSE, Device
from parkway.plan.step import PAGE_TOKENS

DEVICE = torch.device("cuda")
SHAPE = Shape(32, 8, 128)
OTHERS = (Shape(4, 1, 256, window=512, soft_cap=50.0, sinks=True), Shape(9, 3, 80), Shape(16, 8, 64, window=100))
DECODES = ((1, 1128), (4, 1128), (8, 1128), (16, 1128), (64, 1128), (8, 8192), (32, 4096), (1, 8192))
PREFILLS = ((1, 4096), (16, 1024))
ALL_WHOLE = 1
"""Of `abreast`: every tile is one item."""
COLD_BYTES = 200_000_000
POSITIONS = 32768


FEWS = few_candidates(SHAPE.group, SHAPE.head_dim)
MANYS = many_candidates(SHAPE.group, SHAPE.head_dim)

Launch = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """Chats of one length, the last `tokens` of each computed; all layers have keys and values."""

    chats: int
    length: int
    tokens: int
    q: torch.Tensor
    pool: torch.Tensor
    tables: torch.Tensor

    @classmethod
    def drawn(cls, chats: int, length: int, tokens: int) -> "Bench":
        pages = -(-length // PAGE_TOKENS)
        page_bytes = 4 * SHAPE.kv_heads * PAGE_TOKENS * SHAPE.head_dim
        layers = min(36, max(2, COLD_BYTES // (chats * pages * page_bytes)))
        shape = (chats * pages, layers, 2, SHAPE.kv_heads, PAGE_TOKENS, SHAPE.head_dim)
        pool = torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)
        tables = torch.zeros(chats, pages + (pages % 2 == 0), dtype=torch.int32, device=DEVICE)  # else two variants
        tables[:, :pages] = torch.randperm(chats * pages, device=DEVICE).view(chats, pages)
        q = torch.randn(chats * tokens, SHAPE.heads, SHAPE.head_dim, dtype=torch.bfloat16, device=DEVICE)
        return cls(chats, length, tokens, q, pool, tables)

    @property
    def bytes_read(self) -> int:
        return self.chats * self.length * SHAPE.kv_heads * SHAPE.head_dim * 4

    @property
    def operations(self) -> int:
        """Of both products, for the pairs of positions that see each other."""
        seen = self.tokens * (self.length - self.tokens) + self.tokens * (self.tokens + 1) // 2
        return 4 * self.chats * seen * SHAPE.heads * SHAPE.head_dim

    def launcher(self, config: Config, pdl: int = 0, abreast: int = NEVER_WHOLE) -> Launch:
        """Launches the attention of one layer, and returns the output that all layers share."""
        counts = np.full(self.chats, self.tokens, np.int32)
        firsts = np.cumsum(counts, dtype=np.int32) - counts
        chunks = Chunks(firsts, counts, np.arange(self.chats, dtype=np.int32), self.length - counts)
        work, scratch = lists_of(config, abreast, chunks, len(self.q))
        out = torch.full_like(self.q, torch.nan)
        how: dict[str, Any] = {
            "config": Configs(config, config),
            "scale": 1 / math.sqrt(SHAPE.head_dim),
            "pdl": pdl,
        }

        def launch(number: int) -> torch.Tensor:
            layer = number % self.pool.shape[1]
            return attention(self.q, self.pool, layer, self.tables, work, scratch, out, **how)

        return launch

    def dense(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values bf16 [chats, kv_heads, positions, head_dim], as SDPA wants them."""
        used = self.tables[:, : -(-self.length // PAGE_TOKENS)].long()
        pages = self.pool[used, layer]  # [chats, pages, 2, kv_heads, 64, head_dim]
        kv = pages.permute(2, 0, 3, 1, 4, 5).reshape(2, self.chats, SHAPE.kv_heads, -1, SHAPE.head_dim)
        return kv[0, :, :, : self.length].contiguous(), kv[1, :, :, : self.length].contiguous()

    @property
    def queries(self) -> torch.Tensor:
        """bf16 [chats, heads, tokens, head_dim], likewise."""
        return self.q.view(self.chats, self.tokens, SHAPE.heads, SHAPE.head_dim).transpose(1, 2).contiguous()


def lists_of(config: Config, abreast: int, chunks: Chunks, count: int) -> tuple[Work, Scratch]:
    """All chunks in the list of `config`, in lists as long as a server's."""
    tokens = config.height // SHAPE.group
    cut = {"few_tokens": tokens, "many_tokens": tokens, "abreast": abreast, "short": POSITIONS if config.apart else 0}
    sizes = Sizes.of(count, len(chunks.row), POSITIONS, most_partials=10_000 if config.apart else 1, **cut)
    lists = Lists(*(np.zeros(shape, np.int32) for shape in sizes.shapes.values()))
    build(sizes, chunks, count, lists)
    few, few_count, many, many_count = (torch.from_numpy(part).to(DEVICE) for part in lists)
    work = Work(few if config.apart else few[:0], few_count, many[:0] if config.apart else many, many_count)
    return work, Scratch.allocate(sizes.partials, SHAPE.heads, SHAPE.kv_heads, SHAPE.head_dim, DEVICE)


def microseconds(launch: Launch, launches: int = 36) -> float:
    """Of one launch: the median of some replays of a graph."""
    launch(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for i in range(launches):
            launch(i)
    graph.replay()
    times = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return float(median(times))


def bits() -> Iterator[str]:
    """Every configuration against every other, rows alone against rows among others."""
    for made in _subjects():
        started = perf_counter()
        try:
            told = str(bit_check.check([made], torch.equal).dropped or "all equal")
        except bit_check.BitCheckFailed as failure:
            told = str(failure)
        taken = perf_counter() - started
        yield f"bits {tuple(made.shape)} {len(made.candidates)} configurations: {told} ({taken:.2f} s)"


def _subjects() -> list[AttentionSubject]:
    """All configurations of the shape that is measured, two of every other."""
    first, *others = subjects(DEVICE, 0, (SHAPE, *OTHERS))
    return [first, *(replace(made, candidates=[made.candidates[0], made.candidates[-1]]) for made in others)]


def errors() -> Iterator[str]:
    """Relative to float64, as norms, beside SDPA's."""
    bench = Bench.drawn(2, 1128, 600)
    k, v = bench.dense(0)
    mask = torch.ones(bench.tokens, bench.length, dtype=torch.bool, device=DEVICE).tril(bench.length - bench.tokens)
    wide_k, wide_v = (x.repeat_interleave(SHAPE.group, 1).double() for x in (k, v))
    truth = scaled_dot_product_attention(bench.queries.double(), wide_k, wide_v, attn_mask=mask)
    theirs = scaled_dot_product_attention(bench.queries, k, v, attn_mask=mask, enable_gqa=True)
    for name, config in (("few", FEWS[0]), ("many", MANYS[0])):
        out = bench.launcher(config)(0)
        ours = out.view(bench.chats, bench.tokens, SHAPE.heads, -1).transpose(1, 2)
        yield f"error {name}: {_relative(ours, truth):.2e} (SDPA {_relative(theirs, truth):.2e})"


def _relative(made: torch.Tensor, truth: torch.Tensor) -> float:
    return float((made.double() - truth).norm() / truth.norm())


def decodes() -> Iterator[str]:
    """All forms of `few`: warps, tiles in splits or whole, programs for each multiprocessor at most."""
    shipped, ours = Choices(FEWS, MANYS), side_by_side(DEVICE, SHAPE.kv_heads)
    for chats, length in DECODES:
        bench, pdl = Bench.drawn(chats, length, 1), early(chats)
        now = microseconds(bench.launcher(shipped.of(chats).few, pdl, ours))
        timed = [
            f"{config.warps} {form} {programs}: {_within(programs, bench.launcher(config, pdl, abreast)):.1f}"
            for config in FEWS
            for form, abreast in (("split", NEVER_WHOLE), ("whole", ALL_WHOLE))
            for programs in (3, 8)
        ]
        k, v = bench.dense(0)
        theirs = microseconds(_sdpa(bench.queries, k, v, causal=False))
        yield f"decode {chats} x {length}: {now:.1f} us, {bench.bytes_read / now / 1e6:.2f} TB/s; SDPA {theirs:.1f} us"
        yield "    warps, form, programs: us: " + "; ".join(timed)


def _within(programs: int, launch: Launch) -> float:
    """The time with so many programs of `few` for each multiprocessor, whatever the number of rows."""
    kept, launching.CALM_ROWS = launching.CALM_ROWS, POSITIONS if programs == 3 else 0
    try:
        return microseconds(launch)
    finally:
        launching.CALM_ROWS = kept


def prefills() -> Iterator[str]:
    for chats, length in PREFILLS:
        bench = Bench.drawn(chats, length, length)
        rate = bench.operations / 1e6
        timed = [(config, microseconds(bench.launcher(config, early(len(bench.q))), 4)) for config in MANYS]
        k, v = (x.repeat_interleave(SHAPE.group, 1) for x in bench.dense(0))
        theirs = microseconds(_sdpa(bench.queries, k, v, causal=True), 4)
        told = "; ".join(f"{tuple(config[1:4])} {time:.0f} us, {rate / time:.0f}" for config, time in timed)
        yield f"prefill {chats} x {length}, TFLOP/s: SDPA {rate / theirs:.0f}"
        yield f"    (height, warps, stages), the first is shipped: {told}"


def early(rows: int) -> int:
    return DENSE.of(Device.found(), rows)


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> Launch:
    return lambda _: scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


def host() -> Iterator[str]:
    ones = np.ones(64, np.int32)
    chunks = Chunks(np.arange(64, dtype=np.int32), ones, np.arange(64, dtype=np.int32), 1127 * ones)
    for abreast in (NEVER_WHOLE, 8):
        sizes = Sizes.of(64, 64, POSITIONS, few_tokens=4, many_tokens=32, most_partials=10**5, abreast=abreast)
        lists, times = Lists(*(np.zeros(shape, np.int32) for shape in sizes.shapes.values())), []
        for _ in range(200):
            started = perf_counter()
            build(sizes, chunks, 64, lists)
            times.append((perf_counter() - started) * 1e6)
        yield f"host: lists of 64 chats {median(times):.0f} us, {abreast} abreast"


def compile_side_by_side() -> Iterator[str]:
    """Fills the compiler's cache on disk, a kernel each."""
    jobs = [(number, config, False) for number, made in enumerate(_subjects()) for config in made.candidates]
    jobs += [(0, config, True) for config in (*FEWS, *MANYS)]
    workers = min(len(jobs), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_compile, *zip(*jobs, strict=True)))
    yield f"compiled {len(jobs)} kernels"


def _compile(number: int, config: Config, pdl: int) -> None:
    if pdl:
        Bench.drawn(1, 100, 1).launcher(config, pdl)(0)
    else:
        made = _subjects()[number]
        made.output(config, slice(0, made.rows))
    torch.cuda.synchronize()


def main() -> None:
    started = perf_counter()
    torch.manual_seed(0)
    for part in (compile_side_by_side, bits, errors, host, decodes, prefills):
        for line in part():
            print(f"[{perf_counter() - started:5.1f} s] {line}", flush=True)


if __name__ == "__main__":
    main()
