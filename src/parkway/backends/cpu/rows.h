// Operations on one row each: embedding, norm, quantisation to int8, RoPE with the KV write, picking rows for logits.
#pragma once
#include "linear.h"

namespace {

// 32 floats -> int8 with scale max|x| / 127, rounded to nearest even; s = d * sum(q) and sums of q are what zero points need.
INLINE void quantise32(const float *x, int8_t *q, float *d, float *s, pk_sums *sums) {
    F a = load(x), b = load(x + 16);
    float top = largest(max(abs(a), abs(b)));
    F inverse = all(top > 1e-30f ? 127.f / top : 0.f);
    I qa = to_int(mul(a, inverse)), qb = to_int(mul(b, inverse));
    store_int8(q, qa);
    store_int8(q + 16, qb);
    *d = top / 127.f;
    const int first = sum(qa), both = first + sum(qb);
    *sums = {(int16_t)first, (int16_t)both};
    *s = *d * (float)both;
}

// Rows [begin, end) of so many, `from` the first of them. Block by block: rows of a tile lie side by side, and other
// threads write theirs into the same cache lines.
INLINE void quantise_rows(const pk_rows *x, const float *from, int64_t begin, int64_t end, int64_t rows) {
    const int64_t blocks = x->k / 32, tile = row_tile(rows);
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t r = begin; r < end; r++) {
            const int64_t at = block_at(r, b, blocks, tile);
            quantise32(from + (r - begin) * x->k + b * 32, x->q + at * 32, x->d + at, x->s + at, x->sum + at);
        }
}

// p[0]: pk_rows whose f is quantised into its q.
void quantise(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const pk_rows *x = (const pk_rows *)in->p[0];
    quantise_rows(x, x->f + begin * x->k, begin, end, rows_of(step, in));
}

// x / sqrt(mean(x²) + epsilon) * weight; y may be x.
INLINE void norm(const float *x, const float *weight, float epsilon, int64_t width, float *y) {
    F squares = all(0.f);
    for (int64_t i = 0; i < width; i += 16) squares = fma(load(x + i), load(x + i), squares);
    F scale = all(1.f / sqrtf(sum(squares) / (float)width + epsilon));
    for (int64_t i = 0; i < width; i += 16) store(y + i, mul(mul(load(x + i), scale), load(weight + i)));
}

// p[0]: in [rows, n0]; p[1]: weight [n0]; p[2]: pk_rows out, f always, q where it is not null; f[0]: epsilon.
void rms_norm(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const int64_t width = in->n[0];
    const float *weight = (const float *)in->p[1];
    const pk_rows *out = (const pk_rows *)in->p[2];
    for (int64_t r = begin; r < end; r++) norm((const float *)in->p[0] + r * width, weight, in->f[0], width, out->f + r * width);
    if (out->q) quantise_rows(out, out->f + begin * width, begin, end, rows_of(step, in));
}

// p[0]: packed weights [vocabulary, n0] with n1 bytes a group; p[1]: out [rows, n0]; f[0]: what they are multiplied by.
template <class W> void embed(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const int64_t width = in->n[0];
    for (int64_t r = begin; r < end; r++) {
        const int32_t token = step->batch->tokens[r];
        const uint8_t *p = (const uint8_t *)in->p[0] + (token / 16) * in->n[1];
        float *out = (float *)in->p[1] + r * width;
        float lanes[16];
        for (int64_t i = 0; i < width; i += 32, p += W::bytes) {
            W w = W::load(p);
            for (int c = 0; c < 32; c++) {
                store(lanes, w.value(c));
                out[i + c] = lanes[token % 16] * in->f[0];
            }
        }
    }
}

// p[0]: in [rows, n0]; p[1]: out [logit rows, n0].
void take(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const int64_t width = in->n[0];
    for (int64_t j = begin; j < end; j++)
        memcpy((float *)in->p[1] + j * width, (const float *)in->p[0] + step->batch->logit_row[j] * width, width * sizeof(float));
}

// Where a page keeps the keys and values of one layer: keys as tiles of 16 positions [head, tile, lane of head, position]
// so that a tile's scores are 16 sums side by side, values [head, position, lane of head]. `tables`: page tables of all
// slots, cut as the batch's are, where a layer's pages follow from the slot alone; null: they are the batch's.
struct Layout {
    int64_t kv_heads, head_dim, page_bytes, layer_bytes, layer;
    const int32_t *tables;
    const int32_t *pages_of(const pk_batch *batch, int64_t row) const { return (tables ? tables : batch->pages) + batch->table_of[row]; }
    template <class T> T *keys(uint8_t *pool, int64_t page, int64_t head, int64_t tile) const {
        return (T *)(pool + page * page_bytes + layer * layer_bytes) + (head * (PK_PAGE / 16) + tile) * head_dim * 16;
    }
    template <class T> T *values(uint8_t *pool, int64_t page, int64_t head, int64_t position) const {
        return (T *)(pool + page * page_bytes + layer * layer_bytes) + ((kv_heads + head) * PK_PAGE + position) * head_dim;
    }
};

// Pairs half a head apart: the compiler takes many at once.
INLINE void rotate_halves(float *__restrict a, float *__restrict b, const float *__restrict turns, int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        const float c = turns[2 * i], s = turns[2 * i + 1], u = a[i], v = b[i];
        a[i] = u * c - v * s;
        b[i] = u * s + v * c;
    }
}

// Pairs of neighbours. GCC 12 would see a complex product, and fuse its multiplications and additions in spite of
// -ffp-contract=off, if it saw both lines at once.
INLINE void rotate_neighbours(float *x, const float *turns, int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        const float c = turns[2 * i], s = turns[2 * i + 1], u = x[2 * i], v = x[2 * i + 1];
        const float uc = u * c, vs = v * s, us = u * s;
        float vc = v * c;
        asm("" : "+m"(vc));
        x[2 * i] = uc - vs;
        x[2 * i + 1] = us + vc;
    }
}

INLINE void rotate(float *x, const float *turns, int64_t half, bool neighbours) {
    if (neighbours) rotate_neighbours(x, turns, half);
    else rotate_halves(x, x + half, turns, half);
}

// Each key is a lane of as many lines as its head has lanes: they are on their way while queries are turned.
template <class T> INLINE void fetch_lines(const Layout &layout, uint8_t *pool, int64_t page, int64_t at) {
    for (int64_t h = 0; h < layout.kv_heads; h++) {
        const uint8_t *keys = (const uint8_t *)layout.keys<T>(pool, page, h, at / 16);
        for (int64_t byte = 0; byte < layout.head_dim * 16 * (int64_t)sizeof(T); byte += 64) __builtin_prefetch(keys + byte, 1);
    }
}

// p[0..2]: q, k, v with strides n5, n6, n6; p[3]: Layout; p[4]: pool; p[5]: (cos, sin) [positions, n1 / 2, 2].
// n0: heads, n1: rotated lanes, n2: 1 if pairs are neighbours, 0 if they lie half a head apart. q and k are rotated in
// place, and before that, if p[6] and p[7] are weights [lanes of head] of RMS norms with epsilon f[0], every head is normed.
template <class T> void rope_and_write(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const Layout &layout = *(const Layout *)in->p[3];
    const int64_t dim = layout.head_dim, half = in->n[1] / 2;
    const bool neighbours = in->n[2];
    const pk_batch *batch = step->batch;
    uint8_t *pool = (uint8_t *)in->p[4];
    for (int64_t r = begin; r < end; r++) {
        const int64_t position = batch->positions[r], at = position % PK_PAGE;
        const int64_t page = layout.pages_of(batch, r)[position / PK_PAGE];
        const float *turns = (const float *)in->p[5] + position * 2 * half;
        float *q = (float *)in->p[0] + r * in->n[5], *k = (float *)in->p[1] + r * in->n[6];
        const float *v = (const float *)in->p[2] + r * in->n[6];
        fetch_lines<T>(layout, pool, page, at);
        for (int64_t h = 0; h < in->n[0]; h++) {
            if (in->p[6]) norm(q + h * dim, (const float *)in->p[6], in->f[0], dim, q + h * dim);
            rotate(q + h * dim, turns, half, neighbours);
        }
        for (int64_t h = 0; h < layout.kv_heads; h++) {
            if (in->p[7]) norm(k + h * dim, (const float *)in->p[7], in->f[0], dim, k + h * dim);
            rotate(k + h * dim, turns, half, neighbours);
            T *keys = layout.keys<T>(pool, page, h, at / 16) + at % 16, *values = layout.values<T>(pool, page, h, at);
            T line[16];
            for (int64_t i = 0; i < dim; i += 16) {
                store_value(line, load(k + h * dim + i));
                for (int64_t j = 0; j < 16; j++) keys[(i + j) * 16] = line[j];
                store_value(values + i, load(v + h * dim + i));
            }
        }
    }
}

}  // namespace
