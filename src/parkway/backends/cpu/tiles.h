// Linear layers of 16 rows at a time by the matrix unit (AMX), which multiplies a tile of activations with a tile of weights:
// integers, so the bits are those of the dot instruction. What is not a full tile of rows goes the usual way.
#pragma once
#include "linear.h"

namespace {

// What the unit's registers are: 0 sums [16 rows, 16 outputs]; 1, 2 activations [16 rows, 32 or 16 columns]; 3, 4 weights, as
// many columns of 16 outputs. Said once a step, since other libraries that the thread calls may say something else.
INLINE void shape_tiles() {
    static __thread uint64_t shaped = 0;
    if (shaped == pk_steps_of_thread) return;
    struct alignas(64) { uint8_t palette, start, zeros[14]; uint16_t row_bytes[16]; uint8_t rows[16]; } shape = {};
    const uint8_t row_bytes[] = {64, 32, 16, 64, 64}, rows[] = {16, 16, 16, 8, 4};
    shape.palette = 1;
    for (int i = 0; i < 5; i++) shape.row_bytes[i] = row_bytes[i], shape.rows[i] = rows[i];
    asm volatile("ldtilecfg %0" ::"m"(shape));
    shaped = pk_steps_of_thread;
}

// sums [16, 16] = activations, whose rows lie 32 bytes apart, times weights, whose quads of columns lie 64 bytes apart.
template <int COLUMNS> INLINE void multiply_tiles(const int8_t *q, const B *w, int32_t *sums) {
    asm volatile("tilezero %%tmm0" ::);
    if constexpr (COLUMNS == 32) {
        asm volatile("tileloadd (%0,%1,1), %%tmm1" ::"r"(q), "r"((int64_t)32), "m"(*(const int8_t(*)[512])q));
        asm volatile("tileloadd (%0,%1,1), %%tmm3" ::"r"(w), "r"((int64_t)64), "m"(*(const B(*)[8])w));
        asm volatile("tdpbssd %%tmm3, %%tmm1, %%tmm0" ::);
    } else {
        asm volatile("tileloadd (%0,%1,1), %%tmm2" ::"r"(q), "r"((int64_t)32), "m"(*(const int8_t(*)[496])q));
        asm volatile("tileloadd (%0,%1,1), %%tmm4" ::"r"(w), "r"((int64_t)64), "m"(*(const B(*)[4])w));
        asm volatile("tdpbssd %%tmm4, %%tmm2, %%tmm0" ::);
    }
    asm volatile("tilestored %%tmm0, (%1,%2,1)" : "=m"(*(int32_t(*)[256])sums) : "r"(sums), "r"((int64_t)64));
}

constexpr int ROWS = PK_ROW_TILE;
constexpr int64_t MOST_BLOCKS = 16;  // of weights that are made at once, for all rows: what the first cache holds

// Dot products of a block of weights and 16 rows: [parts, 16 rows, 16 outputs].
template <class W> INLINE void dots_of_rows(const W &w, const int8_t *q, int32_t *dot) {
    for (int part = 0; part < W::PARTS; part++)
        multiply_tiles<32 / W::PARTS>(q + part * 16, w.w + part * 4, dot + part * 16 * ROWS);
}

// Sums of 16 rows go on, by some blocks of weights. `next`: the packed blocks behind them.
template <class W>
INLINE void add_blocks(const pk_rows &x, int64_t row, int64_t first, int64_t count, const W *w, const uint8_t *next, float *out,
                       int64_t stride) {
    const int64_t at = block_at(row, first, x.k / 32, ROWS);
    alignas(64) int32_t dot[2][W::PARTS * 16 * ROWS];  // the next block's are on their way while one's are added
    F acc[ROWS];
    for (int m = 0; m < ROWS; m++) acc[m] = first ? load(out + m * stride) : all(0.f);
    const int8_t *q = x.q + at * 32;
    const float *d = x.d + at, *s = x.s + at;
    const pk_sums *sum = x.sum + at;
    dots_of_rows<W>(w[0], q, dot[0]);
    for (int64_t b = 0; b < count; b++, d += ROWS, s += ROWS, sum += ROWS) {
        if (row == 0)
            for (int64_t byte = 0; byte < W::bytes; byte += 64) prefetch_far(next + FAR_BYTES + b * W::bytes + byte);
        q += 32 * ROWS;
        if (b + 1 < count) dots_of_rows<W>(w[b + 1], q, dot[(b + 1) % 2]);
#pragma GCC unroll 16
        for (int m = 0; m < ROWS; m++) {
            I parts[W::PARTS];
            for (int part = 0; part < W::PARTS; part++) parts[part] = load_int(dot[b % 2] + (part * ROWS + m) * 16);
            acc[m] = w[b].scaled(parts, d[m], s[m], sum[m], acc[m]);
        }
    }
    for (int m = 0; m < ROWS; m++) store(out + m * stride, acc[m]);
}

template <class W> void tiled_group(const pk_rows *x, int64_t rows, const uint8_t *p, float *out, int64_t stride) {
    const int64_t tiled = rows / ROWS * ROWS, blocks = x->k / 32;
    if (tiled) shape_tiles();
    for (int64_t first = 0; tiled && first < blocks; first += MOST_BLOCKS) {
        alignas(64) W w[MOST_BLOCKS];
        const int64_t count = blocks - first < MOST_BLOCKS ? blocks - first : MOST_BLOCKS;
        for (int64_t b = 0; b < count; b++) {
            w[b] = W::load(p + (first + b) * W::bytes);
            for (int j = 0; j < 8; j++) w[b].w[j] = less(w[b].w[j], W::LESS);
        }
        const uint8_t *next = p + (first + count) * W::bytes;
        for (int64_t row = 0; row < tiled; row += ROWS) add_blocks<W>(*x, row, first, count, w, next, out + row * stride, stride);
    }
    if (tiled < rows) linear_rows<Int8<W>>(*x, tiled, rows, p, out, stride);
}

}  // namespace
