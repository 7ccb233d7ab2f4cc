"""Attention: values against float64, and the same bits for a row in either kernel, every tile and any company."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from parkway.backends import bit_check
from parkway.backends.bit_check import BitCheckFailed
from parkway.backends.cuda import attention
from parkway.backends.cuda.attention import (
    Choices,
    Config,
    Configs,
    Scratch,
    Work,
    few_candidates,
    many_candidates,
)
from parkway.backends.cuda.attention_subjects import STRANGER, AttentionSubject, Shape, subject, subjects
from parkway.backends.cuda.attention_work import NEVER_WHOLE, Chunks, Lists, Sizes, build
from parkway.plan.step import PAGE_TOKENS
from tests.backends.cuda import interpreted

if not torch.cuda.is_available():
    interpreted.mend()

# NumPy warns, in the interpreter, of the NaN that a stranger's rows are made of.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SPLIT = 128
CHATS = ((130, 1), (0, 17), (63, 1), (126, 6), (300, 2), (128, 1), (64, 1), (40, 3))
FEW = Config(1, 16, 4, 3)
MANY = Config(0, 64, 4, 3)
SHAPES = {
    "plain": Shape(4, 2, 16),
    "groups of three": Shape(3, 1, 48),
    "a group of one": Shape(1, 1, 32),
    "a large group": Shape(17, 1, 16),
    "windowed": Shape(2, 1, 16, window=70),
    "a window of one": Shape(2, 1, 16, window=1),
    "capped": Shape(4, 1, 16, soft_cap=3.0),
    "sinks": Shape(2, 1, 16, sinks=True),
    "everything": Shape(6, 2, 80, window=200, soft_cap=20.0, sinks=True),
}

SOME_WHOLE, ALL_WHOLE = 7, 1
"""Of `abreast`: with these chats, tiles of two splits are one item and those of three are not; all are one item."""

every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def drawn(device: torch.device, shape: Shape, seed: int = 0) -> AttentionSubject:
    return subject(device, seed, shape, CHATS, SPLIT)


def few_of(shape: Shape) -> Config:
    return FEW._replace(height=max(16, 1 << (shape.group - 1).bit_length()))


def all_rows(made: AttentionSubject, config: Config) -> torch.Tensor:
    return made.output(config, slice(0, made.rows))


def attended(made: AttentionSubject, chunk: int, row: int) -> tuple[Any, Any]:
    """One row of a chunk in float64, and the same of the values' sizes: float64 [heads, head_dim] each."""
    shape, chunks = made.shape, made.chunks
    position = int(chunks.start[chunk]) + row
    seen = slice(max(0, position - shape.window + 1) if shape.window else 0, position + 1)
    used = made.tables[chunk, : position // PAGE_TOKENS + 1].long()
    pages = made.pool[used, -1].double().cpu().transpose(0, 2)  # [kv_heads, 2, pages, 64, head_dim]
    kv = pages.reshape(shape.kv_heads, 2, -1, shape.head_dim)[:, :, seen].repeat_interleave(shape.group, 0).numpy()
    q = made.q[int(chunks.row[chunk]) + row].double().cpu().numpy()
    scores = np.einsum("hd,hpd->hp", q, kv[:, 0]) / math.sqrt(shape.head_dim)
    if shape.soft_cap:
        scores = shape.soft_cap * np.tanh(scores / shape.soft_cap)
    sinks = made.sinks.double().cpu().numpy()[:, None] if shape.sinks else np.full((shape.heads, 1), -np.inf)
    top = np.maximum(scores.max(1, keepdims=True), sinks)
    weights = np.exp(scores - top)
    weights /= weights.sum(1, keepdims=True) + np.exp(sinks - top)
    return np.einsum("hp,hpd->hd", weights, kv[:, 1]), np.einsum("hp,hpd->hd", weights, np.abs(kv[:, 1]))


@every_shape
@pytest.mark.parametrize("kernel", ["few", "many"])
def test_values_are_the_reference(device: torch.device, shape: Shape, kernel: str) -> None:
    made = replace(drawn(device, shape), abreast=SOME_WHOLE)
    out = all_rows(made, few_of(shape) if kernel == "few" else MANY).view(torch.bfloat16).double().cpu().numpy()
    for chunk, (_, tokens) in enumerate(CHATS):
        if chunk == STRANGER:
            continue
        for row in range(tokens):
            wanted, sizes = attended(made, chunk, row)
            error = np.abs(out[made.chunks.row[chunk] + row] - wanted)
            assert (error <= 2**-7 * sizes + 1e-30).all(), (chunk, row)


@pytest.mark.parametrize("name", ["plain", "groups of three", "windowed", "everything"])
def test_either_kernel_every_tile_and_whole_tiles_give_the_same_bits(device: torch.device, name: str) -> None:
    shape = SHAPES[name]
    made = drawn(device, shape)
    few, expected = few_of(shape), all_rows(made, MANY)
    tried = [(few, NEVER_WHOLE), (few, SOME_WHOLE), (few._replace(height=2 * few.height), ALL_WHOLE)]
    if device.type == "cuda":  # where warps and stages are something
        tried += [(few._replace(warps=2, stages=2), SOME_WHOLE), (MANY._replace(height=128, warps=8), NEVER_WHOLE)]
    for config, abreast in tried:
        assert torch.equal(all_rows(replace(made, abreast=abreast), config), expected), (config, abreast)


@pytest.mark.parametrize("name", ["plain", "a window of one", "windowed"])
def test_a_row_alone_and_chunks_cut_anywhere_give_the_same_bits(device: torch.device, name: str) -> None:
    shape = SHAPES[name]
    made = drawn(device, shape)
    expected = all_rows(made, MANY)
    for config, cuts in ((few_of(shape), (0, 1, 3, 17, 20, 22, 25, 26, made.rows)), (MANY, (20, 22, 26))):
        for begin, end in pairwise(cuts):
            assert torch.equal(made.output(config, slice(begin, end)), expected[begin:end]), (config, begin)


def test_the_bit_check_passes_every_candidate(device: torch.device) -> None:
    made = drawn(device, Shape(4, 1, 32))
    assert {config.apart for config in made.candidates} == {0, 1}
    if device.type == "cpu":  # where warps and stages are nothing
        made = replace(made, candidates=list({config[:2]: config for config in made.candidates}.values()))
    assert not bit_check.check([made], torch.equal).dropped


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault: the length of splits depends on the configuration or on the number of rows."""

    made: AttentionSubject
    split: Callable[[Config, int], int]
    candidates: Sequence[Config]
    name: str = "attention"

    @property
    def rows(self) -> int:
        return self.made.rows

    def suits(self, config: Config, rows: int) -> bool:
        return True

    def output(self, config: Config, rows: slice) -> torch.Tensor:
        return replace(self.made, split=self.split(config, rows.stop - rows.start)).output(config, rows)


def test_splits_that_depend_on_the_tile_are_found(device: torch.device) -> None:
    high = MANY._replace(height=2 * MANY.height)
    planted = Planted(
        drawn(device, SHAPES["capped"]), lambda config, rows: 64 if config == high else 128, (FEW, MANY, high)
    )
    assert bit_check.check([planted], torch.equal).dropped == {"attention": [tuple(high)]}


def test_splits_that_depend_on_the_batch_fail_the_check_by_name(device: torch.device) -> None:
    planted = Planted(drawn(device, SHAPES["capped"]), lambda config, rows: 64 if rows > 8 else 128, (FEW, MANY))
    with pytest.raises(BitCheckFailed, match="attention"):
        bit_check.check([planted], torch.equal)


def test_the_subjects_of_a_model_have_its_shapes(device: torch.device) -> None:
    shapes = (SHAPES["plain"], SHAPES["windowed"])
    made = subjects(device, 0, shapes)
    assert [each.shape for each in made] == list(shapes)
    assert all(each.q.shape == (each.rows, each.shape.heads, 16) and each.rows > 200 for each in made)


def test_the_subjects_have_tiles_of_both_kinds(device: torch.device) -> None:
    for made in subjects(device, 0, (SHAPES["capped"], SHAPES["sinks"])):
        lists = made.lists(made.candidates[0], made.chunks, made.rows)[1]
        _, tokens, _, start, _, _, items, _ = lists.few[: lists.few_count[0]].T
        assert ((items == 1) & (start + tokens > made.split)).any()
        assert (items > 2).any()


@pytest.mark.parametrize("rows", [1, 64])
def test_choices_are_by_rows_among_what_is_allowed(rows: int) -> None:
    few, many = few_candidates(4, 128), many_candidates(4, 128)
    assert Choices(few, many).of(rows) == Configs(few[rows == 1], many[0])
    assert Choices(few[1:], many[1:]).of(rows) == Configs(few[1], many[1])
    assert len({config.height for config in few}) == 1


def launched(
    made: AttentionSubject, sizes: Sizes, scratch: Scratch, out: torch.Tensor, chunks: Chunks | None = None
) -> tuple[int, int]:
    """Both kernels on lists that `build` divides, as a step does it; returns their lengths."""
    lists = Lists(*(np.zeros(length, np.int32) for length in sizes.shapes.values()))
    counts = build(sizes, made.chunks if chunks is None else chunks, len(out), lists)
    work = Work(*(torch.from_numpy(part).to(out.device) for part in lists))
    q = torch.cat([made.q, torch.full_like(made.q, torch.nan)])[: len(out)]
    config, scale = Configs(FEW, MANY), 1 / math.sqrt(made.shape.head_dim)
    attention.attention(q, made.pool, 1, made.tables, work, scratch, out, config=config, scale=scale, split=SPLIT)
    return counts


def sized(made: AttentionSubject, rows: int, most_partials: int) -> Sizes:
    cut = {"few_tokens": FEW.height // made.shape.group, "many_tokens": MANY.height // made.shape.group}
    return Sizes.of(rows, len(CHATS), 320, most_partials=most_partials, split=SPLIT, **cut)


@pytest.mark.parametrize("most_partials", [1000, 9])
def test_what_scratch_has_no_room_for_is_computed_all_the_same(device: torch.device, most_partials: int) -> None:
    made = drawn(device, SHAPES["plain"])
    expected = all_rows(made, FEW)
    sizes = sized(made, made.rows, most_partials)
    scratch = Scratch.allocate(sizes.partials, 4, 2, 16, device)
    for _ in range(2):  # what one launch leaves in scratch must not disturb the next
        out = torch.full_like(made.q, torch.nan)
        _, many = launched(made, sizes, scratch, out)
        assert (many == 1) == (most_partials == 1000)  # the long chunk is there anyway
        stranger = int(made.chunks.row[STRANGER])
        out[stranger : stranger + CHATS[STRANGER][1]] = 0
        assert torch.equal(out.view(torch.int16), expected)
        assert not scratch.arrived.any()


def test_rows_of_nobody_are_zeros(device: torch.device) -> None:
    made = drawn(device, SHAPES["plain"])
    sizes = sized(made, made.rows + 7, 1000)
    out = torch.full((made.rows + 7, 4, 16), torch.nan, dtype=torch.bfloat16, device=device)
    launched(made, sizes, Scratch.allocate(sizes.partials, 4, 2, 16, device), out)
    assert not out[made.rows :].any()
    assert not out[: int(made.chunks.row[STRANGER])].isnan().any()


def test_rows_may_lie_apart(device: torch.device) -> None:
    made = drawn(device, SHAPES["plain"])
    expected = all_rows(made, MANY)
    fused = torch.full((made.rows, 128), torch.nan, dtype=torch.bfloat16, device=device)
    q = fused[:, :64].view(made.rows, 4, 16)
    q.copy_(made.q)
    apart = replace(made, q=q)
    assert not q.is_contiguous()
    for config in (FEW, MANY):
        assert torch.equal(all_rows(apart, config), expected)


def test_a_pool_of_too_many_rows_is_refused() -> None:
    pool = torch.empty(2**17, 64, 2, 8, PAGE_TOKENS, 16, dtype=torch.bfloat16, device="meta")
    with pytest.raises(ValueError, match="int32"):
        attention._rows_of(pool)
