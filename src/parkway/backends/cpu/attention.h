// Attention over pages. A query's result is a fixed function of its position: splits of 128 positions in rising order, from
// the one where its window begins, in each the largest score, the weights' sum and the weighted values, then merged in
// order. Tiles and threads only share loads.
#pragma once
#include "activation.h"
#include "rows.h"

namespace {

constexpr int MAX_QUERIES = 6;  // queries that share one load of K and V: as many sums as registers allow
constexpr int MAX_DIM = 256;

struct Partial {  // of one query over one split, or over all splits merged so far
    float largest, total;
    float values[MAX_DIM];
};

struct Queries {
    const float *q[MAX_QUERIES];
    int64_t positions[MAX_QUERIES];  // the last position that each query sees
    int64_t firsts[MAX_QUERIES];     // the first one
    int64_t last, first;             // the largest and the smallest of them
};

struct Scoring {
    float scale, soft_cap;  // no cap: 0
};

INLINE int clamp16(int64_t n) { return n < 0 ? 0 : n > 16 ? 16 : (int)n; }

// Meanwhile comes from memory what is read next: the keys of the next tile, the values at this one's positions.
template <class T, int N>
INLINE void score_tile(const T *keys, const T *next, const T *values, const Queries &queries, int64_t dim, F scores[N]) {
    for (int i = 0; i < N; i++) scores[i] = all(0.f);
    for (int64_t d = 0; d < dim; d++) {
        if (d * sizeof(T) % 4 == 0) {
            prefetch((const uint8_t *)(next + d * 16));
            prefetch((const uint8_t *)(values + d * 16));
        }
        F k = load_value(keys + d * 16);
#pragma GCC unroll 6
        for (int i = 0; i < N; i++) scores[i] = fma(k, all(queries.q[i][d]), scores[i]);
    }
}

// Weights of one split: exp(score - largest), exactly 0 where the query does not see; their sum lane by lane, then the tree.
// The query sees what is in [from, to), counted from the split's start; tiles before `begin` have no scores.
INLINE void weigh(float *scores, int64_t begin, int64_t tiles, int64_t from, int64_t to, Partial *out) {
    F top = all(-INFINITY), total = all(0.f);
    for (int64_t c = begin; c < tiles; c++) top = max(load(scores + c * 16), top);
    out->largest = largest(top);
    for (int64_t c = begin; c < tiles; c++) {
        F e = exp(sub(load(scores + c * 16), all(out->largest)));
        e = first(clamp16(to - c * 16), e, all(0.f));
        if (from > c * 16) e = first(clamp16(from - c * 16), all(0.f), e);
        total = add(total, e);
        store(scores + c * 16, e);
    }
    out->total = sum(total);
}

// Weighted values of 16 * VECTORS lanes of the head, from lane d on.
template <class T, int N, int VECTORS>
INLINE void sum_lanes(const Layout &layout, uint8_t *pool, const int32_t *pages, int64_t head, int64_t start, int64_t from,
                      int64_t count, const float (*weights)[PK_SPLIT], int64_t d, Partial *out) {
    F acc[N][VECTORS];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < VECTORS; j++) acc[i][j] = all(0.f);
    for (int64_t p = from; p < count; p++) {
        const T *v = layout.values<T>(pool, pages[(start + p) / PK_PAGE], head, (start + p) % PK_PAGE) + d;
        F value[VECTORS];
        for (int j = 0; j < VECTORS; j++) value[j] = load_value(v + 16 * j);
#pragma GCC unroll 6
        for (int i = 0; i < N; i++)
            for (int j = 0; j < VECTORS; j++) acc[i][j] = fma(all(weights[i][p]), value[j], acc[i][j]);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < VECTORS; j++) store(out[i].values + d + 16 * j, acc[i][j]);
}

template <class T, int N>
INLINE void sum_values(const Layout &layout, uint8_t *pool, const int32_t *pages, int64_t head, int64_t start, int64_t from,
                       int64_t count, const float (*weights)[PK_SPLIT], Partial *out) {
    int64_t d = 0;
    for (; d + 16 * VALUE_VECTORS <= layout.head_dim; d += 16 * VALUE_VECTORS)
        sum_lanes<T, N, VALUE_VECTORS>(layout, pool, pages, head, start, from, count, weights, d, out);
    for (; d < layout.head_dim; d += 16) sum_lanes<T, N, 1>(layout, pool, pages, head, start, from, count, weights, d, out);
}

template <class T, int N>
INLINE void attend_split(const Layout &layout, uint8_t *pool, const int32_t *pages, int64_t head, const Queries &queries,
                         int64_t start, Scoring how, Partial *out) {
    float scores[N][PK_SPLIT];
    const int64_t rest = queries.last + 1 - start, count = rest < PK_SPLIT ? rest : PK_SPLIT, tiles = (count + 15) / 16;
    const int64_t from = queries.first > start ? queries.first - start : 0;
    for (int64_t c = from / 16; c < tiles; c++) {
        F tile[N];
        const int64_t at = start + c * 16, then = at + 16 <= queries.last ? at + 16 : at;
        const T *keys = layout.keys<T>(pool, pages[at / PK_PAGE], head, at % PK_PAGE / 16);
        const T *next = layout.keys<T>(pool, pages[then / PK_PAGE], head, then % PK_PAGE / 16);
        const T *values = layout.values<T>(pool, pages[at / PK_PAGE], head, at % PK_PAGE);
        score_tile<T, N>(keys, next, values, queries, layout.head_dim, tile);
        for (int i = 0; i < N; i++) {
            F score = mul(tile[i], all(how.scale));
            if (how.soft_cap) score = mul(tanh(div(score, all(how.soft_cap))), all(how.soft_cap));
            score = first(clamp16(queries.positions[i] + 1 - at), score, all(-INFINITY));
            if (queries.firsts[i] > at) score = first(clamp16(queries.firsts[i] - at), all(-INFINITY), score);
            store(scores[i] + c * 16, score);
        }
    }
    for (int i = 0; i < N; i++) weigh(scores[i], from / 16, tiles, queries.firsts[i] - start, queries.positions[i] + 1 - start, out + i);
    sum_values<T, N>(layout, pool, pages, head, start, from, count, scores, out);
}

INLINE void merge(Partial *a, const Partial &b, int64_t dim) {
    float top = a->largest > b.largest ? a->largest : b.largest, lanes[16];
    store(lanes, exp(first(1, all(a->largest - top), all(b.largest - top))));
    F keep = all(lanes[0]), take = all(lanes[1]);
    a->largest = top;
    a->total = a->total * lanes[0] + b.total * lanes[1];
    for (int64_t d = 0; d < dim; d += 16) store(a->values + d, fma(load(a->values + d), keep, mul(load(b.values + d), take)));
}

INLINE void copy(const Partial &from, int64_t dim, Partial *to) {
    to->largest = from.largest;
    to->total = from.total;
    memcpy(to->values, from.values, (size_t)dim * sizeof(float));
}

// A sink is one more score of its head, without a value.
INLINE void finish(const Partial &a, int64_t dim, const float *sink, float *out) {
    float inverse = 1.f / a.total;
    if (sink) {
        float top = a.largest > *sink ? a.largest : *sink, lanes[16];
        store(lanes, exp(first(1, all(a.largest - top), all(*sink - top))));
        inverse = lanes[0] / (a.total * lanes[0] + lanes[1]);
    }
    for (int64_t d = 0; d < dim; d += 16) store(out + d, mul(load(a.values + d), all(inverse)));
}

// All splits of up to six queries of one KV head, one after the other. A query that does not reach a split, or begins
// behind it, is as if alone: nothing is merged.
template <class T, int N>
void attend(const Layout &layout, uint8_t *pool, const int32_t *pages, int64_t head, const Queries &queries, Scoring how, Partial *sums) {
    Partial part[N];
    for (int64_t start = queries.first / PK_SPLIT * PK_SPLIT; start <= queries.last; start += PK_SPLIT) {
        attend_split<T, N>(layout, pool, pages, head, queries, start, how, part);
        for (int i = 0; i < N; i++) {
            if (queries.positions[i] < start || queries.firsts[i] >= start + PK_SPLIT) continue;
            if (queries.firsts[i] >= start) copy(part[i], layout.head_dim, sums + i);
            else merge(sums + i, part[i], layout.head_dim);
        }
    }
}

template <class T, int N>
void attend_one(const Layout &layout, uint8_t *pool, const int32_t *pages, int64_t head, const Queries &queries, int64_t start,
                Scoring how, Partial *out) {
    attend_split<T, N>(layout, pool, pages, head, queries, start, how, out);
}

using Attend = void (*)(const Layout &, uint8_t *, const int32_t *, int64_t, const Queries &, Scoring, Partial *);
using AttendOne = void (*)(const Layout &, uint8_t *, const int32_t *, int64_t, const Queries &, int64_t, Scoring, Partial *);
template <class T> constexpr Attend ATTEND[MAX_QUERIES] = {attend<T, 1>, attend<T, 2>, attend<T, 3>,
                                                          attend<T, 4>, attend<T, 5>, attend<T, 6>};
template <class T> constexpr AttendOne ATTEND_ONE[MAX_QUERIES] = {attend_one<T, 1>, attend_one<T, 2>, attend_one<T, 3>,
                                                                 attend_one<T, 4>, attend_one<T, 5>, attend_one<T, 6>};

INLINE int64_t first_seen(const pk_batch *batch, int64_t row, int64_t window) {
    const int64_t position = batch->positions[row];
    return window && position >= window ? position + 1 - window : 0;
}

// p[0]: q [rows, n5]; p[1]: out [rows, n6]; p[2]: Partial [PK_SPLIT_ROWS, heads, n1 splits]; p[3]: Layout; p[4]: pool; p[5]:
// sinks [heads], or null. n0: heads; n2: window, or 0; f[0]: scale; f[1]: soft cap, or 0. Items: (tile, KV head), or (row, KV
// head, split) where the step says so.
template <class T> void attention(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const Layout &layout = *(const Layout *)in->p[3];
    const int64_t heads = in->n[0], shared = heads / layout.kv_heads, splits = step->splits, window = in->n[2];
    const Scoring how = {in->f[0], in->f[1]};
    const float *sinks = (const float *)in->p[5];
    const pk_batch *batch = step->batch;
    for (int64_t item = begin; item < end; item++) {
        const int64_t pair = splits ? item / splits : item, head = pair % layout.kv_heads;
        const pk_tile tile = splits ? pk_tile{(int32_t)(pair / layout.kv_heads), 1} : step->tiles[pair / layout.kv_heads];
        const int32_t *pages = layout.pages_of(batch, tile.row);
        const int64_t all_queries = tile.rows * shared, batches = (all_queries + MAX_QUERIES - 1) / MAX_QUERIES;
        for (int64_t b = 0; b < batches; b++) {
            const int64_t from = all_queries * b / batches, to = all_queries * (b + 1) / batches;
            Queries queries;
            queries.last = 0;
            queries.first = INT64_MAX;
            for (int64_t i = from; i < to; i++) {
                const int64_t row = tile.row + i / shared, lane = (head * shared + i % shared) * layout.head_dim;
                queries.q[i - from] = (const float *)in->p[0] + row * in->n[5] + lane;
                queries.positions[i - from] = batch->positions[row];
                queries.firsts[i - from] = first_seen(batch, row, window);
                if (batch->positions[row] > queries.last) queries.last = batch->positions[row];
                if (queries.firsts[i - from] < queries.first) queries.first = queries.firsts[i - from];
            }
            Partial parts[MAX_QUERIES];
            if (!splits) {
                ATTEND<T>[to - from - 1](layout, (uint8_t *)in->p[4], pages, head, queries, how, parts);
                for (int64_t i = from; i < to; i++) {
                    const int64_t h = head * shared + i % shared;
                    float *out = (float *)in->p[1] + (tile.row + i / shared) * in->n[6] + h * layout.head_dim;
                    finish(parts[i - from], layout.head_dim, sinks ? sinks + h : nullptr, out);
                }
                continue;
            }
            const int64_t split = item % splits, start = split * PK_SPLIT;
            if (start > queries.last || start + PK_SPLIT <= queries.first) continue;
            ATTEND_ONE<T>[to - from - 1](layout, (uint8_t *)in->p[4], pages, head, queries, start, how, parts);
            Partial *kept = (Partial *)in->p[2] + (tile.row * heads + head * shared + from) * in->n[1] + split;
            for (int64_t i = 0; i < to - from; i++) memcpy(kept + i * in->n[1], parts + i, sizeof(Partial));
        }
    }
}

// The same instruction's fields. Items: (row, head); none unless the step's splits were separate.
void merge_splits(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const Layout &layout = *(const Layout *)in->p[3];
    const float *sinks = (const float *)in->p[5];
    for (int64_t item = begin; item < end; item++) {
        const int64_t row = item / in->n[0], head = item % in->n[0];
        Partial *parts = (Partial *)in->p[2] + item * in->n[1];
        const int64_t nearest = first_seen(step->batch, row, in->n[2]) / PK_SPLIT;
        for (int64_t s = nearest + 1; s * PK_SPLIT <= step->batch->positions[row]; s++) merge(parts + nearest, parts[s], layout.head_dim);
        float *out = (float *)in->p[1] + row * in->n[6] + head * layout.head_dim;
        finish(parts[nearest], layout.head_dim, sinks ? sinks + head : nullptr, out);
    }
}

}  // namespace
