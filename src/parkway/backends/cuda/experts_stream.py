"""Products of many sorted rows and their experts' matrices, with one program per multiprocessor, as `linear_stream`.

A warp streams tiles in by bulk loads, groups of four warps multiply them. A tile begins with an expert's first place or
`rows` further on; what it has of the next expert's rows is computed and never stored. Each output is one running fp32
sum over ascending k, so the bits are those of `experts_plain`. Needs a GPU of the Hopper kind.
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

from parkway.backends import Activation
from parkway.backends.cuda.experts_config import REGISTERS, Tiles
from parkway.backends.cuda.experts_route import Routes
from parkway.backends.cuda.experts_stack import Stack
from parkway.backends.cuda.launch import multiprocessors, tile_map, weight_map
from parkway.backends.cuda.linear_config import GATES
from parkway.backends.cuda.linear_epilogue import halves, product, store_coalesced
from parkway.backends.cuda.linear_stream import stage_before, turn

BAND = 2
"""Tiles of rows that are visited before the next outputs: about one expert's."""


@gluon.jit
def _place(tile, row_tiles, output_tiles, band, tiles):
    """The expert, first place and end of a tile's rows, and which tile of outputs it is: down a band, then across."""
    first = tile // (band * output_tiles) * band
    height = gl.minimum(row_tiles - first, band)
    inside = tile % (band * output_tiles)
    at = tiles + 3 * (first + inside % height)
    begin = gl.load(at + 1)
    return gl.load(at), begin, begin + gl.load(at + 2), inside // height


@gluon.jit
def _load(sources, rings, walk, GATED: gl.constexpr, PDL: gl.constexpr):
    """The loading warp: every step of this program's tiles, in order."""
    x, weight, up = sources
    x_ring, ring, ready, free = rings
    inputs, outputs, tiles, count, output_tiles, band = walk
    STAGES: gl.constexpr = ring.shape[0]
    WIDTH: gl.constexpr = ring.shape[1]
    OUTPUTS: gl.constexpr = WIDTH // 2 if GATED else WIDTH
    STEP: gl.constexpr = ring.shape[2]
    BYTES: gl.constexpr = (x_ring.shape[1] + WIDTH) * STEP * 2
    if PDL:
        gdc_wait()
    row_tiles = gl.load(count)
    stage, phase = 0, 1  # nobody has been in the first round's stages: waiting for the round before returns at once
    for tile in range(gl.program_id(0), row_tiles * output_tiles, gl.num_programs(0)):
        expert, begin, _, output = _place(tile, row_tiles, output_tiles, band, tiles)
        first_output = expert * outputs + output * OUTPUTS
        for k in range(0, inputs, STEP):
            mbarrier.wait(free.index(stage), phase)
            bar = ready.index(stage)
            into = ring.index(stage)
            mbarrier.expect(bar, BYTES)
            if GATED:
                tma.async_copy_global_to_shared(weight, [first_output, k], bar, into.slice(0, OUTPUTS))
                tma.async_copy_global_to_shared(up, [first_output, k], bar, into.slice(OUTPUTS, OUTPUTS))
            else:
                tma.async_copy_global_to_shared(weight, [first_output, k], bar, into)
            tma.async_copy_global_to_shared(x, [begin, k], bar, x_ring.index(stage))
            stage, phase = turn(stage, phase, STAGES)


@gluon.jit
def _with_bias(sums, bias, output, outputs):
    """sums [rows, width] + bias, which begins with the expert's first output."""
    at = output + gl.arange(0, sums.shape[1], gl.SliceLayout(0, sums.type.layout))
    return sums + gl.load(bias + at, mask=at < outputs, other=0.0)[None, :]


@gluon.jit
def _multiply(
    y, biases, rings, walk, GROUP: gl.constexpr, GROUPS: gl.constexpr, GATED: gl.constexpr,
    BIAS: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """Four warps: their share of the rows of each of this program's tiles, times all outputs of the tile."""
    if PDL:
        gdc_wait()
    x_ring, ring, ready, free = rings
    inputs, outputs, tiles, count, output_tiles, band = walk
    bias, up_bias = biases
    ROWS: gl.constexpr = x_ring.shape[1] // GROUPS
    STAGES: gl.constexpr = ring.shape[0]
    STEP: gl.constexpr = ring.shape[2]
    WIDTH: gl.constexpr = ring.shape[1]
    OUTPUTS: gl.constexpr = WIDTH // 2 if GATED else WIDTH
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    row_tiles = gl.load(count)
    stage, phase = 0, 0
    for tile in range(gl.program_id(0), row_tiles * output_tiles, gl.num_programs(0)):
        expert, begin, end, output_tile = _place(tile, row_tiles, output_tiles, band, tiles)
        row = begin + GROUP * ROWS
        output = output_tile * OUTPUTS
        if row < end:
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
                if BIAS:
                    gate = _with_bias(gate, bias + expert * outputs, output, outputs)
                    up = _with_bias(up, up_bias + expert * outputs, output, outputs)
                total = product(GATED, gate, up)
            elif BIAS:
                total = _with_bias(total, bias + expert * outputs, output, outputs)
            store_coalesced(y, (bias, y, 0), (end, outputs), total, row, output, False, False)
        else:  # a short tile's rows are all with the other four warps, who have the matrix unit to themselves
            for _ in range(0, inputs, STEP):
                mbarrier.wait(ready.index(stage), phase)
                mbarrier.arrive(free.index(stage))
                stage, phase = turn(stage, phase, STAGES)


@gluon.jit(do_not_specialize=["band"])
def grouped_stream_kernel(
    x, weight, up, bias, up_bias, tiles, count, y, outputs, inputs, band, ROWS: gl.constexpr, OUTPUTS: gl.constexpr,
    STEP: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
    BIAS: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """y [places, outputs] = x Wᵀ + bias of each place's expert; if GATED, activation(x Wᵀ + bias) * (x Upᵀ + bias)."""
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
    rings, sources, biases = (x_ring, ring, ready, free), (x, weight, up), (bias, up_bias)
    walk = (inputs, outputs, tiles, count, gl.cdiv(outputs, OUTPUTS), band)
    if GROUPS == 1:
        gl.warp_specialize(
            [
                (_multiply, (y, biases, rings, walk, 0, GROUPS, GATED, BIAS, PDL)),
                (_load, (sources, rings, walk, GATED, PDL)),
            ],
            [1],
            [40],
        )
    else:
        gl.warp_specialize(
            [
                (_multiply, (y, biases, rings, walk, 0, GROUPS, GATED, BIAS, PDL)),
                (_multiply, (y, biases, rings, walk, 1, GROUPS, GATED, BIAS, PDL)),
                (_load, (sources, rings, walk, GATED, PDL)),
            ],
            [4, 1],
            [240, 40],
        )


def launch(
    x: torch.Tensor,
    routes: Routes,
    weight: Stack,
    up: Stack | None,
    rows: int,
    tiles: Tiles,
    kind: Activation,
    y: torch.Tensor,
    *,
    pdl: int = 0,
) -> None:
    """Computes y [places, outputs] of x [places, inputs] for tiles of at most `rows` places."""
    outputs, inputs = weight.rows, weight.columns
    weights = weight_map(weight.values, tiles.outputs, tiles.inputs)
    most = len(routes.tiles) * triton.cdiv(outputs, tiles.outputs)
    grouped_stream_kernel[(min(most, multiprocessors(x.device)),)](
        tile_map(x, rows, tiles.inputs),
        weights,
        weights if up is None else weight_map(up.values, tiles.outputs, tiles.inputs),
        y if weight.bias is None else weight.bias,
        y if up is None or up.bias is None else up.bias,
        routes.tiles,
        routes.count,
        y,
        outputs,
        inputs,
        BAND,
        rows,
        tiles.outputs,
        tiles.inputs,
        tiles.warps // 4,
        tiles.stages,
        GATED=0 if up is None else GATES[kind],
        BIAS=weight.bias is not None,
        PDL=bool(pdl),
        num_warps=4,
        maxnreg=REGISTERS,
        enable_fp_fusion=False,
        launch_pdl=bool(pdl),
    )
