// Rows normed, and their products with a mixture's router: x / sqrt(mean(x²) + epsilon) * norm, rounded to bf16, and that
// times the weights, in fp32.
//
// A block has 16 experts and 8 rows at a time, a warp 256 columns of both: a part. A product's parts are running fp32 sums
// over ascending columns, 16 at a time; they are added in order. A row's squares are added by part as well: 8 columns of
// each lane in order, then lanes pair by pair. So no row depends on another, or on how many there are.
#include "rings.h"

struct Router {
    const u16 *x;        // bf16 [rows, columns]
    const float *norm;   // [columns]
    const u16 *weights;  // bf16 [experts, columns]
    const float *bias;   // [experts] or null
    u16 *normed;         // bf16 [rows, columns]
    float *logits;       // [rows, experts]
    i64 x_stride;
    int rows, columns, experts;
    int blocks;  // that share the rows
    float epsilon;
};

constexpr int TALL = 16, WIDE = 8, PART = (TALL + WIDE) * X_PITCH;
constexpr int PART_FLOATS = (TALL + 2) * WIDE;  // of a part: its sums, squares of rows, and what they are scaled by

DEVICE float *floats_of(int part, int parts) { return (float *)(room + parts * PART) + part * PART_FLOATS; }

DEVICE float half_of_pair(u32 pair, int i) { return __uint_as_float(i ? pair & 0xffff0000u : pair << 16); }

DEVICE float squares_of(const u32 (&words)[4]) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float value = half_of_pair(words[i / 2], i % 2);
        sum = __fadd_rn(sum, __fmul_rn(value, value));
    }
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2)
        sum = __fadd_rn(sum, of_lane_across(sum, apart));
    return sum;
}

// What the block's rows are scaled by: each warp works it out for itself, a lane for each row.
DEVICE void find_scales(const Router &p, float *scales, int parts) {
    int lane = threadIdx.x % 32;
    if (lane < WIDE) {
        float total = 0;
        for (int part = 0; part < parts; part++)
            total = __fadd_rn(total, floats_of(part, parts)[TALL * WIDE + lane]);
        scales[lane] = inverse_root(__fadd_rn(__fdiv_rn(total, (float)p.columns), p.epsilon));
    }
    __syncwarp();
}

// This lane's 8 columns of a row, normed.
DEVICE uint4 normed_words(const u32 (&words)[4], float scale, const float (&norm)[8]) {
    u32 made[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float low = __fmul_rn(__fmul_rn(half_of_pair(words[i], 0), scale), norm[i * 2]);
        float high = __fmul_rn(__fmul_rn(half_of_pair(words[i], 1), scale), norm[i * 2 + 1]);
        made[i] = to_bf16_pair(low, high);
    }
    return make_uint4(made[0], made[1], made[2], made[3]);
}

// total [16 x 8] += 16 rows of weights times 8 rows of activations, TILE_COLUMNS of each, which lie X_PITCH bytes apart in
// shared memory: `weights` and `x` are where this lane begins to read, OneWarp<.., true>::lane_at() behind the first row.
DEVICE void multiply_step(float (&total)[4], const u8 *weights, const u8 *x) {
#pragma unroll
    for (int at = 0; at < X_PITCH - 16; at += 64) {
        u32 b[4];
        load_matrices(b, x + at);
#pragma unroll
        for (int step = 0; step < 2; step++) {
            u32 a[4];
            load_matrices(a, weights + at + step * 32);
            multiply_16x8(total, a, b[step * 2], b[step * 2 + 1]);
        }
    }
}

// Sums of all parts, for 16 experts and 8 rows.
DEVICE void store_logits(const Router &p, int first, int parts) {
    for (int i = threadIdx.x; i < TALL * WIDE; i += blockDim.x) {
        int expert = blockIdx.y * TALL + i / WIDE, row = first + i % WIDE;
        if (expert >= p.experts || row >= p.rows)
            continue;
        float total = floats_of(0, parts)[i];
        for (int part = 1; part < parts; part++)
            total = __fadd_rn(total, floats_of(part, parts)[i]);
        p.logits[(i64)row * p.experts + expert] = p.bias ? __fadd_rn(total, p.bias[expert]) : total;
    }
}

DEVICE void route_rows(const Router &p) {
    int part = threadIdx.x / 32, parts = blockDim.x / 32, lane = threadIdx.x % 32;
    int column = part * TILE_COLUMNS + lane * 8;
    u8 *mine = kept(room + part * PART);
    float *floats = floats_of(part, parts), norm[8];
    bool there = column < p.columns;
#pragma unroll
    for (int row = 0; row < TALL; row++) {
        int expert = blockIdx.y * TALL + row, last = p.experts - 1;
        const u16 *from = p.weights + (i64)(expert < last ? expert : last) * p.columns + column;
        copy16(mine + row * X_PITCH + lane * 16, from, there);
    }
    close_group();
#pragma unroll
    for (int i = 0; i < 8; i++)
        norm[i] = there ? p.norm[column + i] : 0;
    wait_for_earlier_kernels();
    let_later_kernels_start();
    int weights_at = lane % 16 * X_PITCH + lane / 16 * 16, x_at = TALL * X_PITCH + OneWarp<WIDE, true>::lane_at();
    for (int first = blockIdx.x * WIDE; first < p.rows; first += p.blocks * WIDE) {
        int held = p.rows - first;  // rows that don't exist are left out: they make no output
        u32 words[WIDE][4];
#pragma unroll
        for (int row = 0; row < WIDE; row++) {
            uint4 four = make_uint4(0, 0, 0, 0);
            if (row < held && there)
                four = *(const uint4 *)(p.x + (first + row) * p.x_stride + column);
            words[row][0] = four.x, words[row][1] = four.y, words[row][2] = four.z, words[row][3] = four.w;
        }
#pragma unroll
        for (int row = 0; row < WIDE; row++) {
            if (row >= held)
                break;
            float squares = squares_of(words[row]);
            if (lane == row)
                floats[TALL * WIDE + row] = squares;
        }
        __syncthreads();
        float *scales = floats + (TALL + 1) * WIDE;
        find_scales(p, scales, parts);
#pragma unroll
        for (int row = 0; row < WIDE; row++) {
            if (row >= held)
                break;
            uint4 made = normed_words(words[row], scales[row], norm);
            *(uint4 *)(mine + (TALL + row) * X_PITCH + lane * 16) = made;
            if (blockIdx.y == 0 && there)
                *(uint4 *)(p.normed + (i64)(first + row) * p.columns + column) = made;
        }
        wait_for_groups<0>();
        __syncwarp();
        float total[4] = {};
        multiply_step(total, mine + weights_at, mine + x_at);
#pragma unroll
        for (int i = 0; i < 4; i++)
            floats[(lane / 4 + i / 2 * 8) * WIDE + lane % 4 * 2 + i % 2] = total[i];
        __syncthreads();
        store_logits(p, first, parts);
    }
}
