"""Row operations against float64, rows alone against rows among others, and what must not be written."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from parkway.backends import Attention, HeadNorms, KvShape, Rope
from parkway.backends.cuda import rows
from parkway.backends.reference import ReferenceOps, ReferenceStep
from parkway.plan.step import PAGE_TOKENS
from tests.backends.cuda import interpreted
from tests.backends.cuda.drawn_rows import close, drawn

if not torch.cuda.is_available():
    interpreted.mend()

LAYERS, LAYER = 3, 2
PAGES = 8
TABLES = ((6, 1), (4, 3), (0, 2))
POSITIONS: tuple[int, ...] = (0, 63, 64, 100, -1, 7)
SLOTS: tuple[int, ...] = (0, 0, 2, 1, 1, 2)
ALL = slice(0, 6)


def words(device: torch.device, *values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def exact(values: torch.Tensor) -> Any:
    return values.double().cpu().numpy()


def test_embedding_takes_rows_and_for_minus_one_the_slots_last_token(device: torch.device) -> None:
    table = drawn(device, 40, 48)
    made = rows.embed(words(device, 3, -1, 39, -1), words(device, 0, 1, 1, 0), words(device, 7, 11), table)
    assert torch.equal(made, table[[3, 11, 39, 7]])


def test_embedding_reads_a_table_with_a_stride(device: torch.device) -> None:
    table = drawn(device, 40, 64)[:, :48]
    made = rows.embed(words(device, 39, 0), words(device, 0, 0), words(device, 0), table)
    assert torch.equal(made, table[[39, 0]])


def test_take_picks_rows_and_row_0_where_there_is_none(device: torch.device) -> None:
    x = drawn(device, 5, 80)
    assert torch.equal(rows.take(x, words(device, 4, 0, 4, -1)), x[[4, 0, 4, 0]])


@pytest.mark.parametrize("width", [16, 48, 576, 1000])
def test_rms_norm_is_the_reference(device: torch.device, width: int) -> None:
    x, weight = drawn(device, 5, width), drawn(device, width, seed=1).float()
    wide = x.double()
    wanted = wide / torch.sqrt((wide * wide).mean(1, keepdim=True) + 1e-5) * weight.double()
    close(rows.rms_norm(x, weight, 1e-5), wanted)


def test_a_row_of_rms_norm_does_not_depend_on_the_others(device: torch.device) -> None:
    around = torch.full((9, 200), torch.nan, dtype=torch.bfloat16, device=device)
    x = around[:7, :96]
    x.copy_(drawn(device, 7, 96))
    weight = drawn(device, 96, seed=1).float()
    whole = rows.rms_norm(x, weight, 1e-6)
    assert whole.isfinite().all()
    for row in range(7):
        assert torch.equal(rows.rms_norm(x[row : row + 1], weight, 1e-6), whole[row : row + 1])


class Case(NamedTuple):
    heads: int
    kv: KvShape
    rope: Rope | None
    norms: bool = False


CASES = {
    "neighbours": Case(4, KvShape(LAYERS, 2, 16), Rope(1e4, 16, "neighbours")),
    "halves": Case(3, KvShape(LAYERS, 1, 48), Rope(1e4, 48, "halves")),
    "partial neighbours": Case(2, KvShape(LAYERS, 2, 32), Rope(5e5, 16, "neighbours")),
    "partial halves": Case(6, KvShape(LAYERS, 2, 80), Rope(5e5, 32, "halves"), norms=True),
    "norms": Case(8, KvShape(LAYERS, 2, 32), Rope(1e6, 32, "halves"), norms=True),
    "no positions": Case(2, KvShape(LAYERS, 1, 16), None, norms=True),
    "factors": Case(2, KvShape(LAYERS, 1, 16), Rope(1e4, 16, "halves", np.linspace(1, 8, 8, dtype=np.float32))),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


class Made(NamedTuple):
    """What a launch leaves: q, k and v as they came, q as it is, and the pool, which was NaN."""

    came: torch.Tensor
    q: torch.Tensor
    pool: torch.Tensor


def placed(device: torch.device, case: Case, some: slice = ALL) -> Made:
    kv, width = case.kv, case.kv.kv_heads * case.kv.head_dim
    queries = case.heads * kv.head_dim
    fused = drawn(device, len(POSITIONS), queries + 2 * width)[some].clone()
    came = fused.clone()
    shape = (PAGES, LAYERS, 2, kv.kv_heads, PAGE_TOKENS, kv.head_dim)
    pool = torch.full(shape, torch.nan, dtype=torch.bfloat16, device=device)
    turns = torch.from_numpy(case.rope.turns(128)).to(device) if case.rope else None
    tables = torch.tensor(TABLES, dtype=torch.int32, device=device)
    q, k, v = fused[:, :queries], fused[:, queries : queries + width], fused[:, queries + width :]
    at, slots = words(device, *POSITIONS[some]), words(device, *SLOTS[some])
    returned = rows.rope_and_write(q, k, v, turns, at, slots, tables, pool, LAYER, case.rope, norms_of(device, case))
    assert returned.data_ptr() == q.data_ptr()
    assert torch.equal(fused[:, queries:], came[:, queries:])
    return Made(came, q, pool)


def norms_of(device: torch.device, case: Case) -> HeadNorms | None:
    if not case.norms:
        return None
    q, k = (drawn(device, case.kv.head_dim, seed=seed).float() + 1 for seed in (2, 3))
    return HeadNorms(q, k, 1e-6)


@every_case
def test_turned_heads_and_written_pages_are_the_reference(device: torch.device, case: Case) -> None:
    made, real = placed(device, case), [row for row, position in enumerate(POSITIONS) if position >= 0]
    kv, width = case.kv, case.kv.kv_heads * case.kv.head_dim
    came = made.came[real]
    q, k, v = came[:, : -2 * width], came[:, -2 * width : -width], came[:, -width:]
    step = ReferenceStep([], [POSITIONS[row] for row in real], [TABLES[SLOTS[row]] for row in real], [])
    reference = ReferenceOps(kv, step=step)
    norms = norms_of(device, case)
    wide = norms and HeadNorms(exact(norms.q), exact(norms.k), norms.epsilon)
    how = Attention(LAYER, case.heads, 1.0, case.rope, wide)
    wanted = reference.rope_and_write(exact(q), exact(k), exact(v), how)
    close(made.q[real], torch.from_numpy(wanted))
    pool = torch.full(made.pool.shape, torch.nan, dtype=torch.float64)
    for number, page in reference.pages.items():
        pool[number] = torch.from_numpy(page).transpose(2, 3)
    written = ~pool.isnan()
    assert torch.equal(~made.pool.isnan().cpu(), written)
    close(made.pool.cpu()[written], pool[written])


@every_case
def test_values_are_copied_bit_for_bit_and_unturned_lanes_without_norms_too(device: torch.device, case: Case) -> None:
    made, kv = placed(device, case), case.kv
    width = kv.kv_heads * kv.head_dim
    page = made.pool[TABLES[2][1], LAYER, :, :, 0]  # row 2: slot 2, position 64
    assert torch.equal(page[1].reshape(-1), made.came[2, -width:])
    if case.rope and not case.norms:
        unturned = made.came[2, -2 * width : -width].view(kv.kv_heads, kv.head_dim)[:, case.rope.dims :]
        assert torch.equal(page[0][:, case.rope.dims :], unturned)


def test_values_that_are_not_finite_become_finite_in_their_page(device: torch.device) -> None:
    case = CASES["neighbours"]
    kv, width = case.kv, case.kv.kv_heads * case.kv.head_dim
    q, k, v = (drawn(device, 1, columns) for columns in (case.heads * kv.head_dim, width, width))
    v[0, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    pool = torch.zeros((PAGES, LAYERS, 2, kv.kv_heads, PAGE_TOKENS, kv.head_dim), dtype=torch.bfloat16, device=device)
    assert case.rope
    turns, tables = (
        torch.from_numpy(case.rope.turns(8)).to(device),
        torch.tensor(TABLES, dtype=torch.int32, device=device),
    )
    rows.rope_and_write(q, k, v, turns, words(device, 5), words(device, 1), tables, pool, LAYER, case.rope)
    written = pool[TABLES[1][0], LAYER, 1, :, 5].reshape(-1)
    assert written.isfinite().all()
    assert written[0] == 0
    assert written[1] == -written[2] > 1e38
    assert torch.equal(written[3:], v[0, 3:])


def test_a_row_of_nobody_is_left_alone(device: torch.device) -> None:
    case = CASES["norms"]
    made = placed(device, case)
    nobody = POSITIONS.index(-1)
    assert torch.equal(made.q[nobody], made.came[nobody, : made.q.shape[1]])


@every_case
def test_a_row_is_placed_alone_as_among_others(device: torch.device, case: Case) -> None:
    crowd = placed(device, case)
    for row in range(len(POSITIONS)):
        alone = placed(device, case, slice(row, row + 1))
        assert torch.equal(alone.q[0], crowd.q[row])
        written = ~alone.pool.isnan()
        assert torch.equal(alone.pool[written], crowd.pool[written])
