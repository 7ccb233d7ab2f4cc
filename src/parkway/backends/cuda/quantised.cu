// Quantised matrices times few rows of activations; and their rows as bf16.
//
// A matrix's columns are split into `splits` parts, a constant of its shape. The sum over a part is one running fp32
// sum over ascending columns, 16 at a time, as in the kernels for bf16 matrices; the sums of the parts are added in
// order. So the bits are theirs. A warp owns some bands of 8 weight rows and walks their tiles, of one part or of all of them.
// GROUP warps with bands of their own walk side by side and share activations. Tiles come through rings DEPTH tiles
// long. Which of these, and which matrix unit: no output depends on it.
#include "decoders.h"
#include "matrix_unit.h"
#include "ptx.h"
#include "quants.h"
#include "rings.h"

DEVICE void store(const Product &p, int row, int output, float value) {
    if (row >= p.rows || output >= p.outputs)
        return;
    if (p.bias)
        value = __fadd_rn(value, p.bias[output]);
    if (p.residual)
        value = __fadd_rn(value, __uint_as_float((u32)p.residual[row * p.residual_stride + output] << 16));
    i64 at = (i64)row * p.outputs + output;
    if (p.floats)
        ((float *)p.y)[at] = value;
    else
        ((u16 *)p.y)[at] = (u16)to_bf16_pair(value, 0);
}

template <int PAIRS, int TOKENS> using Totals = float[PAIRS][TOKENS / 8][4];

// What `linear_plain.product` computes, in the same order.
DEVICE float product(int kind, float gate, float up) {
    if (kind == 1)
        return __fmul_rn(divided(gate, __fsub_rn(0.0f, gate)), up);
    if (kind == 2) {
        float cube = __fadd_rn(__fmul_rn(__fmul_rn(gate, 0.044715f), gate), 1.0f);
        return __fmul_rn(divided(gate, __fmul_rn(__fsub_rn(0.0f, __fmul_rn(gate, 1.5957691216057308f)), cube)), up);
    }
    gate = fminf(gate, 7.0f);
    up = __fadd_rn(fminf(fmaxf(up, -7.0f), 7.0f), 1.0f);
    return __fmul_rn(divided(gate, __fsub_rn(0.0f, __fmul_rn(gate, 1.702f))), up);
}

// `other`: of a warp with one band the other matrix's totals, if there are two matrices.
template <int BANDS, int PAIRS, int TOKENS>
DEVICE void store_all(const Product &p, int owner, const Totals<PAIRS, TOKENS> &totals,
                      const Totals<PAIRS, TOKENS> &other) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < PAIRS * TOKENS / 4; i++) {
        int pair = i / (TOKENS / 4), j = i / 2 % (TOKENS / 8), row = j * 8 + lane % 4 * 2 + i % 2;
        float first = totals[pair][j][i % 2];
        float second = BANDS == 1 ? other[pair][j][i % 2] : totals[pair][j][2 + i % 2];
        if (p.gated) {
            store(p, row, (owner * PAIRS + pair) * BAND + lane / 4, product(p.gated, first, second));
            continue;
        }
        int output = (owner * BANDS + pair * 2) * BAND + lane / 4;
        store(p, row, output, first);
        if (BANDS > 1)
            store(p, row, output + BAND, second);
    }
}

// The totals of the parts behind the first one, in shared memory: a part's lanes side by side.
template <int PAIRS, int TOKENS> DEVICE float4 *lying(int warp, int i) {
    return (float4 *)room + (warp * (PAIRS * TOKENS / 8) + i) * 32 + threadIdx.x % 32;
}

template <int PAIRS, int TOKENS> DEVICE void leave(const Totals<PAIRS, TOKENS> &totals) {
#pragma unroll
    for (int i = 0; i < PAIRS * TOKENS / 8; i++) {
        const float *four = totals[i / (TOKENS / 8)][i % (TOKENS / 8)];
        *lying<PAIRS, TOKENS>(threadIdx.x / 32, i) = make_float4(four[0], four[1], four[2], four[3]);
    }
}

template <int PAIRS, int TOKENS> DEVICE void take(Totals<PAIRS, TOKENS> &totals, int warp, bool add) {
#pragma unroll
    for (int i = 0; i < PAIRS * TOKENS / 8; i++) {
        float4 four = *lying<PAIRS, TOKENS>(warp, i);
        float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float &total = totals[i / (TOKENS / 8)][i % (TOKENS / 8)][n];
            total = add ? __fadd_rn(total, values[n]) : values[n];
        }
    }
}

// A tile of each band times the activations of its columns.
template <class Type, int BANDS, int PAIRS, int TOKENS, class Unit>
DEVICE void multiply_tile(Totals<PAIRS, TOKENS> &totals, Fragments<PAIRS> (&a)[4], const u8 *tiles, const u8 *x) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        Bands<Type, BANDS> quants;
        quants.load(tiles, half, threadIdx.x % 32);
#pragma unroll
        for (int word = half * 4; word < half * 4 + 4; word++) {
            Unit::make_room(word);
#pragma unroll
            for (int step = 0; step < 2; step++) {
#pragma unroll
                for (int b = 0; b < BANDS; b++) {
                    u32(&fragment)[4] = a[word % 4][b / 2][step];
                    quants.pairs(b, word % 4 * 2 + step, fragment[b % 2], fragment[2 + b % 2]);
                    if (BANDS == 1)  // rows 8 … 15 of the fragment make totals that nobody reads
                        fragment[1] = anything(), fragment[3] = anything();
                }
            }
            Unit::multiply(totals, a, word, x);
        }
    }
}

// The total of a finished split goes to those before it, and the next one begins.
template <int PAIRS, int TOKENS>
DEVICE void add_split(Totals<PAIRS, TOKENS> &sums, Totals<PAIRS, TOKENS> &totals, bool first) {
#pragma unroll
    for (int i = 0; i < PAIRS * TOKENS / 2; i++) {
        float &sum = sums[i / (TOKENS / 2)][i / 4 % (TOKENS / 8)][i % 4];
        float &total = totals[i / (TOKENS / 2)][i / 4 % (TOKENS / 8)][i % 4];
        sum = first ? total : __fadd_rn(sum, total);
        total = 0;
    }
}

// Adds what the other parts have found, in order, and stores it.
template <int BANDS, int PAIRS, int TOKENS>
DEVICE void store_sums(const Product &p, int owner, int group, int parts, int splits, Totals<PAIRS, TOKENS> &totals) {
    Totals<PAIRS, TOKENS> other = {};
    if (parts > 1) {
        __syncthreads();
        leave<PAIRS, TOKENS>(totals);
        __syncthreads();
    }
    int warp = threadIdx.x / 32;
    if (warp >= group)
        return;
    for (int part = 1; part < splits; part++)
        take<PAIRS, TOKENS>(totals, part * group + warp, true);
    if (BANDS == 1)
        for (int part = splits; part < parts; part++)
            take<PAIRS, TOKENS>(other, part * group + warp, part > splits);
    store_all<BANDS, PAIRS, TOKENS>(p, owner, totals, other);
}

DEVICE void wait_and_let_others_start(const Product &p) {
    if (p.ahead)
        let_later_kernels_start();
    wait_for_earlier_kernels();
    let_later_kernels_start();
}

template <int GROUP> DEVICE void meet_group(int part) {
    if (GROUP == 1)
        __syncwarp();
    else
        meet_some(part + 1, GROUP * 32);
}

// One block: y for all rows of x and the outputs of its warps' bands. SERIAL: a warp walks all parts, one after the
// other; else each part has warps of its own.
template <class Type, int BANDS, int ROWS, int GROUP, int DEPTH, bool SERIAL, class Unit>
DEVICE void multiply_rows(const Product &p) {
    constexpr int TOKENS = ROWS < 8 ? 8 : ROWS, PAIRS = (BANDS + 1) / 2;
    Task<BANDS, SERIAL> task(p, GROUP);
    int parts = blockDim.x / (32 * GROUP);
    Activations<ROWS, GROUP, DEPTH> x(p, task, room);
    Ring<Type, BANDS, DEPTH> ring(p, task, room + parts * (DEPTH * x.SLOT));
    int lane_at = Unit::lane_at();
#pragma unroll
    for (int slot = 0; slot < DEPTH - 1; slot++)
        if (task.tile + slot < task.end)
            ring.fetch(slot);
    wait_and_let_others_start(p);
#pragma unroll
    for (int slot = 0; slot < DEPTH - 1; slot++) {
        if (task.tile + slot < task.end)
            x.fetch(p, slot);
        close_group();
    }
    Totals<PAIRS, TOKENS> totals = {}, sums;
    Fragments<PAIRS> a[4];
    int slot = 0, split = 1;
    for (int tile = task.tile; tile < task.end; tile++) {
        wait_for_groups<DEPTH - 2>();
        Unit::finish();
        meet_group<GROUP>(task.part);
        if (tile + DEPTH - 1 < task.end) {
            int free = slot == 0 ? DEPTH - 1 : slot - 1;
            ring.fetch(free);
            x.fetch(p, free);
        }
        close_group();
        const u8 *tiles = ring.slots + slot * ring.SLOT, *columns = x.slots + slot * x.SLOT + lane_at;
        multiply_tile<Type, BANDS, PAIRS, TOKENS, Unit>(totals, a, tiles, columns);
        slot = slot == DEPTH - 1 ? 0 : slot + 1;
        if (SERIAL && tile + 1 == task.split_end) {
            Unit::finish();
            add_split<PAIRS, TOKENS>(sums, totals, split == 1);
            task.split_end = split_begin(p.tiles, p.splits, ++split);
        }
    }
    Unit::finish();
    if (SERIAL)
        store_sums<BANDS, PAIRS, TOKENS>(p, task.owner, GROUP, parts, 1, sums);
    else
        store_sums<BANDS, PAIRS, TOKENS>(p, task.owner, GROUP, parts, p.splits, totals);
}

#ifdef HAS_BULK_COPIES
// The same for up to 8 rows; each split has warps of its own. All warps of a block that walk a split read the same
// activations in shared memory; how many do is known at the launch only.
template <class Type, int BANDS, int ROWS> DEVICE void multiply_few(const Product &p) {
    using Unit = OneWarp<ROWS, true>;
    constexpr int PAIRS = (BANDS + 1) / 2;
    int lane = threadIdx.x % 32, warps = blockDim.x / 32, parts = warps / p.group;
    Task<BANDS, false> task(p, p.group);
    int sharer = task.part / p.splits * p.group + task.member, sharers = warps / p.splits;
    Window<ROWS> x(p, task, room);
    int rings = p.splits * p.window * x.SLOT;
    BulkRing<Type, BANDS> ring(p, task, room + rings);
    if (lane == 0) {
        ring.begin();
        if (sharer == 0)
            x.begin(sharers);
        show_barriers();
    }
    __syncwarp();
    if (elected())
        ring.fill(task.end - task.tile);
    __syncthreads();
    wait_and_let_others_start(p);
    if (elected())
        x.fill(p, sharer, sharers);
    Totals<PAIRS, 8> totals = {};
    Fragments<PAIRS> a[4];
    Place<ring.SLOT> at(p.depth);
    Place<x.SLOT> x_at(p.window);
    int lane_at = Unit::lane_at();
    for (int left = task.end - task.tile; left > 0; left--) {
        wait_for_barrier(ring.full(at.slot), at.turn);
        wait_for_barrier(x.full(x_at.slot), x_at.turn);
        __syncwarp();
        if (elected()) {
            if (left >= p.depth)
                ring.fetch(at.before());
            if (x.is_short() && left < task.end - task.tile)
                x.leave(p, x_at.before(), sharer == 0);
        }
        multiply_tile<Type, BANDS, PAIRS, 8, Unit>(totals, a, ring.tiles(at.slot), x.rows(x_at.slot) + lane_at);
        at.advance();
        x_at.advance();
    }
    store_sums<BANDS, PAIRS, 8>(p, task.owner, p.group, parts, p.splits, totals);
}
#endif
