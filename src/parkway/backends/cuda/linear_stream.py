"""x Wᵀ with one program per multiprocessor: a warp streams tiles in by bulk loads, groups of four warps multiply them.

The loading warp is ahead by as many steps as shared memory holds, across tiles too, and begins with the weights before
the kernels of the step that write x have ended. Each output is one running fp32 sum over ascending k, so the bits are
those of `linear_plain`. Needs a GPU of the Hopper kind; the interpreter doesn't know it.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from parkway.backends.cuda.launch import multiprocessors, tile_map, weight_map
from parkway.backends.cuda.linear_config import LinearConfig
from parkway.backends.cuda.linear_epilogue import halves, product, store, store_coalesced, terms


@gluon.jit
def _place(tile, row_tiles, output_tiles, band):
    """The first row and output of a tile, in units of tiles: down a band of rows, then on to the next outputs."""
    first = tile // (band * output_tiles) * band
    height = gl.minimum(row_tiles - first, band)
    inside = tile % (band * output_tiles)
    return first + inside % height, inside // height


@gluon.jit
def _after(tile, row, output, k, inputs, row_tiles, output_tiles, band, STEP: gl.constexpr):
    """Where the step after (tile, row, output, k) is."""
    k += STEP
    if k >= inputs:
        k = 0
        tile += gl.num_programs(0)
        row, output = _place(tile, row_tiles, output_tiles, band)
    return tile, row, output, k


@gluon.jit
def turn(stage, phase, STAGES: gl.constexpr):
    """The next stage of the ring; the phase of its barriers changes with every round."""
    last = stage == STAGES - 1
    return gl.where(last, 0, stage + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def stage_before(stage, STAGES: gl.constexpr):
    """Computed, not remembered: Gluon 3.6 takes a variable set to the loop's own `stage` for one that never changes."""
    return gl.where(stage == 0, STAGES - 1, stage - 1)


@gluon.jit
def _load_weights(weight, up, ring, ready, stage, output, k, OUTPUTS: gl.constexpr, GATED: gl.constexpr):
    into = ring.index(stage)
    bar = ready.index(stage)
    if GATED:
        tma.async_copy_global_to_shared(weight, [output * OUTPUTS, k], bar, into.slice(0, OUTPUTS))
        tma.async_copy_global_to_shared(up, [output * OUTPUTS, k], bar, into.slice(OUTPUTS, OUTPUTS))
    else:
        tma.async_copy_global_to_shared(weight, [output * OUTPUTS, k], bar, into)


@gluon.jit
def _load(sources, rings, walk, GATED: gl.constexpr, PDL: gl.constexpr):
    """The loading warp: every step of this program's tiles, in order; first of all the weights of a whole ring."""
    x, weight, up = sources
    x_ring, ring, ready, free = rings
    inputs, row_tiles, output_tiles, band = walk
    STAGES: gl.constexpr = ring.shape[0]
    ROWS: gl.constexpr = x_ring.shape[1]
    OUTPUTS: gl.constexpr = ring.shape[1] // 2 if GATED else ring.shape[1]
    STEP: gl.constexpr = ring.shape[2]
    BYTES: gl.constexpr = (ROWS + ring.shape[1]) * STEP * 2
    tiles = gl.cdiv(row_tiles * output_tiles - gl.program_id(0), gl.num_programs(0))
    steps = tiles * gl.cdiv(inputs, STEP)
    early = gl.minimum(steps, STAGES)
    tile = gl.program_id(0)
    row, output = _place(tile, row_tiles, output_tiles, band)
    k = 0
    for stage in range(early):
        mbarrier.expect(ready.index(stage), BYTES)
        _load_weights(weight, up, ring, ready, stage, output, k, OUTPUTS, GATED)
        tile, row, output, k = _after(tile, row, output, k, inputs, row_tiles, output_tiles, band, STEP)
    if PDL:
        gdc_wait()
    tile = gl.program_id(0)
    row, output = _place(tile, row_tiles, output_tiles, band)
    k = 0
    for stage in range(early):
        tma.async_copy_global_to_shared(x, [row * ROWS, k], ready.index(stage), x_ring.index(stage))
        tile, row, output, k = _after(tile, row, output, k, inputs, row_tiles, output_tiles, band, STEP)
    stage, phase = 0, 0
    for _ in range(STAGES, steps):
        mbarrier.wait(free.index(stage), phase)
        mbarrier.expect(ready.index(stage), BYTES)
        _load_weights(weight, up, ring, ready, stage, output, k, OUTPUTS, GATED)
        tma.async_copy_global_to_shared(x, [row * ROWS, k], ready.index(stage), x_ring.index(stage))
        tile, row, output, k = _after(tile, row, output, k, inputs, row_tiles, output_tiles, band, STEP)
        stage, phase = turn(stage, phase, STAGES)


@gluon.jit
def _multiply(
    y, addends, extent, rings, walk, GROUP: gl.constexpr, GROUPS: gl.constexpr, GATED: gl.constexpr,
    BIAS: gl.constexpr, RESIDUAL: gl.constexpr, COALESCED: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """Four warps: their share of the rows of each of this program's tiles, times all outputs of the tile."""
    if PDL:
        gdc_wait()  # the residual is an earlier kernel's, and y may lie where one still reads
    x_ring, ring, ready, free = rings
    inputs, row_tiles, output_tiles, band = walk
    ROWS: gl.constexpr = x_ring.shape[1] // GROUPS
    STAGES: gl.constexpr = ring.shape[0]
    STEP: gl.constexpr = ring.shape[2]
    WIDTH: gl.constexpr = ring.shape[1]
    OUTPUTS: gl.constexpr = WIDTH // 2 if GATED else WIDTH
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    stage, phase = 0, 0
    for tile in range(gl.program_id(0), row_tiles * output_tiles, gl.num_programs(0)):
        row, output = _place(tile, row_tiles, output_tiles, band)
        row = row * (ROWS * GROUPS) + GROUP * ROWS
        output = output * OUTPUTS
        if not COALESCED:  # these few are loaded before the sums are there
            first, second = terms(addends, extent, row, output, ROWS, WIDTH, LAYOUT, BIAS, RESIDUAL)
        total = gl.zeros([ROWS, WIDTH], gl.float32, LAYOUT)
        for k in range(0, inputs, STEP):
            mbarrier.wait(ready.index(stage), phase)
            x = x_ring.index(stage).slice(GROUP * ROWS, ROWS)
            total = warpgroup_mma(x, ring.index(stage).permute((1, 0)), total, is_async=True)
            total = warpgroup_mma_wait(1, deps=[total])  # the step before has been multiplied: its stage is free
            mbarrier.arrive(free.index(stage_before(stage, STAGES)), pred=k > 0)
            stage, phase = turn(stage, phase, STAGES)
        total = warpgroup_mma_wait(0, deps=[total])
        mbarrier.arrive(free.index(stage_before(stage, STAGES)))
        if GATED:
            gate, up = halves(total)
            total = product(GATED, gate, up)
        if COALESCED:
            store_coalesced(y, addends, extent, total, row, output, BIAS, RESIDUAL)
        else:
            store(y, extent, total, first, second, row, output, BIAS, RESIDUAL)


@gluon.jit(do_not_specialize=["rows", "band"])
def stream_kernel(
    x, weight, up, bias, residual, y, rows, outputs, inputs, residual_stride, band,
    ROWS: gl.constexpr, OUTPUTS: gl.constexpr, STEP: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr,
    GATED: gl.constexpr, BIAS: gl.constexpr, RESIDUAL: gl.constexpr, COALESCED: gl.constexpr,
    PDL: gl.constexpr,
):  # fmt: skip
    """y [rows, outputs] = x [rows, inputs] Wᵀ + bias + residual; if GATED, activation(x Wᵀ) * (x Upᵀ)."""
    row_tiles, output_tiles = gl.cdiv(rows, ROWS), gl.cdiv(outputs, OUTPUTS)
    x_ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, ROWS, STEP], x.layout)
    ring = gl.allocate_shared_memory(gl.bfloat16, [STAGES, OUTPUTS * 2 if GATED else OUTPUTS, STEP], weight.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=GROUPS)
    fence_async_shared()
    if PDL:
        gdc_launch_dependents()
    rings, sources = (x_ring, ring, ready, free), (x, weight, up)
    walk, extent = (inputs, row_tiles, output_tiles, band), (rows, outputs)
    addends = (bias, residual, residual_stride)
    if GROUPS == 1:
        gl.warp_specialize(
            [
                (_multiply, (y, addends, extent, rings, walk, 0, GROUPS, GATED, BIAS, RESIDUAL, COALESCED, PDL)),
                (_load, (sources, rings, walk, GATED, PDL)),
            ],
            [1],
            [40],
        )
    else:
        gl.warp_specialize(
            [
                (_multiply, (y, addends, extent, rings, walk, 0, GROUPS, GATED, BIAS, RESIDUAL, COALESCED, PDL)),
                (_multiply, (y, addends, extent, rings, walk, 1, GROUPS, GATED, BIAS, RESIDUAL, COALESCED, PDL)),
                (_load, (sources, rings, walk, GATED, PDL)),
            ],
            [4, 1],
            [240, 40],
        )


def registers(tile: LinearConfig, matrices: int) -> int:
    """How many a thread has: few enough for two programs on a multiprocessor, if a group's sums leave room for that."""
    return 128 if tile.warps == 4 and tile.rows * tile.outputs * matrices <= 64 * 128 else 168


def launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    up: torch.Tensor | None,
    tile: LinearConfig,
    y: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    gate: int = 0,
    pdl: int = 0,
) -> None:
    """Computes y [rows, outputs] in tiles of `tile`. `gate`: which of `GATES`, where there is an up."""
    rows, outputs = y.shape
    weights = weight_map(weight, tile.outputs, tile.inputs)
    tiles = triton.cdiv(rows, tile.rows) * triton.cdiv(outputs, tile.outputs)
    stream_kernel[(min(tiles, tile.programs * multiprocessors(x.device)),)](
        tile_map(x, tile.rows, tile.inputs),
        weights,
        weights if up is None else weight_map(up, tile.outputs, tile.inputs),
        y if bias is None else bias,
        y if residual is None else residual,
        y,
        rows,
        outputs,
        x.shape[1],
        0 if residual is None else residual.stride(0),
        tile.band,
        tile.rows,
        tile.outputs,
        tile.inputs,
        tile.warps // 4,
        tile.stages,
        GATED=gate,
        BIAS=bias is not None,
        RESIDUAL=residual is not None,
        COALESCED=tile.rows * tile.outputs > 64 * 64,
        PDL=bool(pdl),
        num_warps=4,
        maxnreg=registers(tile, 1 if up is None else 2),
        enable_fp_fusion=False,
        launch_pdl=bool(pdl),
    )
