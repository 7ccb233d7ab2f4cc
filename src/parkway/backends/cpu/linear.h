// Linear layers. A row's sum is one lane of one thread: blocks of 32 columns in rising order, one or two fused
// multiply-adds each, whatever the number of rows. Threads divide output groups only; columns are never split.
#pragma once
#include "activation.h"
#include "weights_k.h"

namespace {

// Rows whose int8 activations lie block by block, so that a linear tile walks one run of memory; a few rows lie denser.
INLINE int64_t row_tile(int64_t rows) { return rows == 1 ? 1 : rows <= 4 ? 4 : PK_ROW_TILE; }
// Where a row's block b lies, counted in blocks.
INLINE int64_t block_at(int64_t row, int64_t b, int64_t blocks, int64_t tile) { return (row / tile * blocks + b) * tile + row % tile; }

// Outputs of a group that a tile computes at once: `of` 16, for one more step of the sum back in `whole`.
struct AllOutputs {
    F v;
    static MEMBER AllOutputs of(F x) { return {x}; }
    MEMBER F whole() const { return v; }
    MEMBER void put(float *out) const { store(out, v); }
};

#if defined(PK_AVX2)
// Half of them, because 16 registers don't hold more beside sums of several rows; what the other half would take is left out.
template <int HALF> struct HalfOutputs {
    __m256 v;
    static MEMBER HalfOutputs of(F x) { return {HALF ? x.b : x.a}; }
    MEMBER F whole() const { return {v, v}; }
    MEMBER void put(float *out) const { _mm256_storeu_ps(out + 8 * HALF, v); }
};
#endif

constexpr int FEW_ROWS = 4;
constexpr int64_t FAR_BYTES = 8192;

template <class W, int ROWS, class Outputs>
INLINE void outputs_int8(const pk_rows &x, int64_t row, int64_t rows, const uint8_t *p, float *out, int64_t stride) {
    const int64_t blocks = x.k / 32, hop = row_tile(rows), first_block = block_at(row, 0, blocks, hop);
    Outputs acc[ROWS];
    for (int m = 0; m < ROWS; m++) acc[m] = Outputs::of(all(0.f));
    const int8_t *q = x.q + first_block * 32;
    const float *d = x.d + first_block, *s = x.s + first_block;
    const pk_sums *sum = x.sum + first_block;
    for (int64_t b = 0; b < blocks; b++, p += W::bytes, q += 32 * hop, d += hop, s += hop, sum += hop) {
        // Weights come from memory once, for the first rows. Few rows wait for nothing else, so that they ask far ahead, and
        // the second cache, which has room for more requests than the first.
        if (row == 0)
            for (int64_t at = 0; at < W::bytes; at += 64)
                if constexpr (ROWS <= FEW_ROWS) prefetch_far(p + FAR_BYTES + at);
                else prefetch(p + 6 * W::bytes + at);
        W w = W::load(p);
#pragma GCC unroll 16
        for (int m = 0; m < ROWS; m++) acc[m] = Outputs::of(add_dot(w, q + 32 * m, d[m], s[m], sum[m], acc[m].whole()));
    }
    for (int m = 0; m < ROWS; m++) acc[m].put(out + (row + m) * stride);
}

template <class W, int ROWS>
INLINE void tile_int8(const pk_rows &x, int64_t row, int64_t rows, const uint8_t *p, float *out, int64_t stride) {
#if defined(PK_AVX2)
    if constexpr (ROWS > 1) {
        outputs_int8<W, ROWS, HalfOutputs<0>>(x, row, rows, p, out, stride);
        return outputs_int8<W, ROWS, HalfOutputs<1>>(x, row, rows, p, out, stride);
    }
#endif
    outputs_int8<W, ROWS, AllOutputs>(x, row, rows, p, out, stride);
}

template <class W, int ROWS> INLINE void tile_float(const pk_rows &x, int64_t row, int64_t, const uint8_t *p, float *out, int64_t stride) {
    F acc[ROWS];
    for (int m = 0; m < ROWS; m++) acc[m] = all(0.f);
    for (int64_t b = 0; b < x.k / 32; b++, p += W::bytes) {
        W w = W::load(p);
        for (int c = 0; c < 32; c++) {
            F value = w.value(c);
#pragma GCC unroll 8
            for (int m = 0; m < ROWS; m++) acc[m] = fma(value, all(x.f[(row + m) * x.k + b * 32 + c]), acc[m]);
        }
    }
    for (int m = 0; m < ROWS; m++) store(out + (row + m) * stride, acc[m]);
}

template <class W> struct Int8 {
    static constexpr int TILE_ROWS = INT8_TILE_ROWS;
    template <int ROWS> INLINE void tile(const pk_rows &x, int64_t row, int64_t rows, const uint8_t *p, float *out, int64_t stride) {
        tile_int8<W, ROWS>(x, row, rows, p, out, stride);
    }
};
template <class W> struct Float {
    static constexpr int TILE_ROWS = FLOAT_TILE_ROWS;
    template <int ROWS> INLINE void tile(const pk_rows &x, int64_t row, int64_t rows, const uint8_t *p, float *out, int64_t stride) {
        tile_float<W, ROWS>(x, row, rows, p, out, stride);
    }
};

template <class T, int ROWS>
INLINE void last_tile(const pk_rows &x, int64_t row, int64_t rows, const uint8_t *p, float *out, int64_t stride) {
    if (rows - row == ROWS) return T::template tile<ROWS>(x, row, rows, p, out, stride);
    if constexpr (ROWS > 1) last_tile<T, ROWS - 1>(x, row, rows, p, out, stride);
}

// Rows from one on, in tiles of as many rows as registers allow; the rest in one smaller tile.
template <class T> void linear_rows(const pk_rows &x, int64_t row, int64_t rows, const uint8_t *p, float *out, int64_t stride) {
    constexpr int MOST = T::TILE_ROWS;
    for (; row + MOST <= rows; row += MOST) T::template tile<MOST>(x, row, rows, p, out, stride);
    if (row < rows) last_tile<T, MOST - 1>(x, row, rows, p, out, stride);
}

// All rows against one group of 16 outputs.
template <class T> void linear_group(const pk_rows *x, int64_t rows, const uint8_t *p, float *out, int64_t stride) {
    linear_rows<T>(*x, 0, rows, p, out, stride);
}

INLINE int64_t rows_of(const pk_step *step, const pk_instr *in) {
    return in->on_logit_rows ? step->batch->logit_rows : step->batch->rows;
}

INLINE void run_group(const pk_segment &s, const pk_rows *x, int64_t rows, int64_t group, float *out, int64_t stride) {
    s.kernel(x, rows, s.weights + group * s.group_bytes, out, stride);
    for (int64_t r = 0; s.bias && r < rows; r++) store(out + r * stride, add(load(out + r * stride), load(s.bias + group * 16)));
}

// p[0]: pk_rows. Items: the groups of 16 outputs of all segments, one segment after the other.
void linear(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const pk_rows *x = (const pk_rows *)in->p[0];
    const int64_t rows = rows_of(step, in);
    int64_t first_group = 0;
    for (const pk_segment &s : in->segment) {
        const int64_t from = begin > first_group ? begin - first_group : 0;
        const int64_t to = end - first_group < s.groups ? end - first_group : s.groups;
        for (int64_t g = from; g < to; g++) {
            float *out = s.out + g * 16;
            run_group(s, x, rows, g, out, s.out_stride);
            for (int64_t r = 0; s.residual && r < rows; r++) {
                float *y = out + r * s.out_stride;
                store(y, add(load(y), load(s.residual + r * s.out_stride + g * 16)));
            }
        }
        first_group += s.groups;
    }
}

constexpr int64_t GATED_GROUPS = 4;  // of the gate at once, then of up: longer runs of memory than one by one

// p[0]: pk_rows; segment 0: gate, segment 1: up, into whose output goes activation(gate) * up; n0: which. Items: groups.
void gated(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int thread) {
    const pk_rows *x = (const pk_rows *)in->p[0];
    const int64_t rows = rows_of(step, in);
    const pk_segment &gate = in->segment[0], &up = in->segment[1];
    float *gates = step->scratch + thread * step->scratch_floats;  // [groups, rows, 16]
    for (; begin < end; begin += GATED_GROUPS) {
        const int64_t groups = end - begin < GATED_GROUPS ? end - begin : GATED_GROUPS;
        for (int64_t g = 0; g < groups; g++) run_group(gate, x, rows, begin + g, gates + g * rows * 16, 16);
        for (int64_t g = 0; g < groups; g++) {
            float *out = up.out + (begin + g) * 16;
            run_group(up, x, rows, begin + g, out, up.out_stride);
            for (int64_t r = 0; r < rows; r++) {
                float *y = out + r * up.out_stride;
                store(y, gated_product(in->n[0], load(gates + (g * rows + r) * 16), load(y)));
            }
        }
    }
}

}  // namespace
