// A mixture of experts. Rows are copied to places sorted by expert, so that each expert's matrices are read once for all
// rows that it has, by the kernels of a linear layer: a row's bits depend on neither. Its experts' results are added in
// the order of its choice.
#pragma once
#include "rows.h"

namespace {

constexpr int64_t MAX_EXPERTS = 1024;

// Of one layer, and where things lie; recorder_experts.py has the twin.
struct Mixture {
    int64_t count, chosen, of_all, kind;
    const float *logits;  // [rows, logits_stride]
    int64_t logits_stride;
    int32_t *experts, *places;  // [rows, chosen]
    float *weights;             // [rows, chosen]
    int32_t *first, *held;      // [count] each expert's first place and how many it has: the tiles of int8 rows begin there
    int32_t *used;              // [1 + count]: how many experts have rows; their numbers
    const pk_rows *x;
    pk_rows *sorted, *hidden;   // by place; q where it is not null, f too
    float *results;             // [places, results_stride]
    int64_t results_stride;
    const float *residual;
    float *out;                 // [rows, results_stride], as residual
};

INLINE const Mixture &mixture(const pk_instr *in) { return *(const Mixture *)in->p[0]; }

// The rows from a place on, where an expert's begin.
INLINE pk_rows rows_from(const pk_rows &x, int64_t place) {
    const int64_t blocks = x.k / 32, at = place * blocks;
    return {x.f ? x.f + place * x.k : nullptr, x.q ? x.q + at * 32 : nullptr, x.d + at, x.s + at, x.sum + at, x.k};
}

// The expert with the largest logit of those that are not taken, the lowest where they tie; what is not a number is -inf.
INLINE int64_t best_of(const float *logits, const uint8_t *taken, int64_t count) {
    int64_t best = -1;
    float top = -INFINITY;
    for (int64_t e = 0; e < count; e++) {
        const float logit = logits[e] == logits[e] ? logits[e] : -INFINITY;
        if (taken[e] || (best >= 0 && logit <= top)) continue;
        best = e;
        top = logit;
    }
    return best;
}

// e^(logit - top), at most 16 of them, 0 in the other lanes.
INLINE F powers(const float *logits, int64_t n, float top) {
    float lanes[16] = {};
    for (int64_t i = 0; i < n; i++) lanes[i] = logits[i];
    return first((int)n, exp(sub(load(lanes), all(top))), all(0.f));
}

// p[0]: Mixture. Items: rows.
void route(const pk_step *, const pk_instr *in, int64_t begin, int64_t end, int) {
    const Mixture &m = mixture(in);
    for (int64_t r = begin; r < end; r++) {
        const float *logits = m.logits + r * m.logits_stride;
        int32_t *experts = m.experts + r * m.chosen;
        float *weights = m.weights + r * m.chosen, total = 0;
        uint8_t taken[MAX_EXPERTS] = {};
        for (int64_t c = 0; c < m.chosen; c++) {
            experts[c] = (int32_t)best_of(logits, taken, m.count);
            taken[experts[c]] = 1;
            weights[c] = logits[experts[c]];
        }
        const float top = weights[0];
        for (int64_t c = 0; c < m.chosen; c += 16) {
            float lanes[16];
            const int64_t n = m.chosen - c < 16 ? m.chosen - c : 16;
            store(lanes, powers(weights + c, n, top));
            for (int64_t i = 0; i < n; i++) {
                weights[c + i] = lanes[i];
                total += lanes[i];
            }
        }
        if (m.of_all) {
            F sums = all(0.f);
            for (int64_t e = 0; e < m.count; e += 16) sums = add(sums, powers(logits + e, m.count - e < 16 ? m.count - e : 16, top));
            total = sum(sums);
        }
        for (int64_t c = 0; c < m.chosen; c++) weights[c] /= total;
    }
}

// p[0]: Mixture. One item: gives every row's choices their places, by expert and then by row.
void sort_rows(const pk_step *step, const pk_instr *in, int64_t, int64_t, int) {
    const Mixture &m = mixture(in);
    const int64_t pairs = rows_of(step, in) * m.chosen;
    memset(m.held, 0, (size_t)m.count * sizeof(int32_t));
    for (int64_t i = 0; i < pairs; i++) m.places[i] = m.held[m.experts[i]]++;
    int64_t next = 0;
    int32_t used = 0;
    for (int64_t e = 0; e < m.count; e++) {
        m.first[e] = (int32_t)next;
        if (!m.held[e]) continue;
        m.used[++used] = (int32_t)e;
        const int64_t tile = row_tile(m.held[e]);
        next += (m.held[e] + tile - 1) / tile * tile;
    }
    m.used[0] = used;
    for (int64_t i = 0; i < pairs; i++) m.places[i] += m.first[m.experts[i]];
}

// p[0]: Mixture. Items: rows, each of which is copied to its places.
void spread(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const Mixture &m = mixture(in);
    const int64_t blocks = m.x->k / 32, from_tile = row_tile(rows_of(step, in));
    for (int64_t i = begin * m.chosen; i < end * m.chosen; i++) {
        const int64_t row = i / m.chosen, place = m.places[i], e = m.experts[i];
        if (m.sorted->f) memcpy(m.sorted->f + place * m.x->k, m.x->f + row * m.x->k, (size_t)m.x->k * sizeof(float));
        if (!m.sorted->q) continue;
        const pk_rows to = rows_from(*m.sorted, m.first[e]);
        const int64_t tile = row_tile(m.held[e]);
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t from = block_at(row, b, blocks, from_tile), at = block_at(place - m.first[e], b, blocks, tile);
            memcpy(to.q + at * 32, m.x->q + from * 32, 32);
            to.d[at] = m.x->d[from];
            to.s[at] = m.x->s[from];
            to.sum[at] = m.x->sum[from];
        }
    }
}

// The segment of one expert; its matrix begins `bytes` after that of the one before.
INLINE pk_segment segment_of(const pk_segment &s, int64_t bytes, int64_t expert) {
    pk_segment one = s;
    one.weights += expert * bytes;
    if (one.bias) one.bias += expert * s.groups * 16;
    return one;
}

// The groups of the experts that have rows, one expert after the other, shared out over as many items as all would need.
struct Share {
    int64_t at, end;
    Share(const Mixture &m, int64_t begin, int64_t stop) : at(begin * m.used[0] / m.count), end(stop * m.used[0] / m.count) {}
};

// p[0]: Mixture; segments 0 and 1: gate and up, n0 and n1 bytes an expert. Items: see Share.
void experts_gated(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int thread) {
    const Mixture &m = mixture(in);
    const int64_t groups = in->segment[1].groups, stride = m.hidden->k;
    float *gates = step->scratch + thread * step->scratch_floats;  // [groups, rows, 16]
    Share share(m, begin, end);
    while (share.at < share.end) {
        const int64_t e = m.used[1 + share.at / groups], first_group = share.at % groups, rows = m.held[e];
        int64_t some = groups - first_group < GATED_GROUPS ? groups - first_group : GATED_GROUPS;
        if (some > share.end - share.at) some = share.end - share.at;
        const pk_segment gate = segment_of(in->segment[0], in->n[0], e), up = segment_of(in->segment[1], in->n[1], e);
        const pk_rows x = rows_from(*m.sorted, m.first[e]);
        for (int64_t g = 0; g < some; g++) run_group(gate, &x, rows, first_group + g, gates + g * rows * 16, 16);
        for (int64_t g = 0; g < some; g++) {
            float *out = m.hidden->f + m.first[e] * stride + (first_group + g) * 16;
            run_group(up, &x, rows, first_group + g, out, stride);
            for (int64_t r = 0; r < rows; r++)
                store(out + r * stride, gated_product(m.kind, load(gates + (g * rows + r) * 16), load(out + r * stride)));
        }
        share.at += some;
    }
}

// p[0]: Mixture. Items: rows, whose hidden rows are quantised.
void quantise_hidden(const pk_step *, const pk_instr *in, int64_t begin, int64_t end, int) {
    const Mixture &m = mixture(in);
    for (int64_t i = begin * m.chosen; i < end * m.chosen; i++) {
        const int64_t e = m.experts[i];
        const pk_rows hidden = rows_from(*m.hidden, m.first[e]);
        const int64_t row = m.places[i] - m.first[e];
        quantise_rows(&hidden, m.hidden->f + m.places[i] * m.hidden->k, row, row + 1, m.held[e]);
    }
}

// p[0]: Mixture; segment 0: down, n0 bytes an expert. Items: see Share.
void experts_down(const pk_step *, const pk_instr *in, int64_t begin, int64_t end, int) {
    const Mixture &m = mixture(in);
    const int64_t groups = in->segment[0].groups;
    for (Share share(m, begin, end); share.at < share.end; share.at++) {
        const int64_t e = m.used[1 + share.at / groups], group = share.at % groups;
        const pk_rows hidden = rows_from(*m.hidden, m.first[e]);
        float *out = m.results + m.first[e] * m.results_stride + group * 16;
        run_group(segment_of(in->segment[0], in->n[0], e), &hidden, m.held[e], group, out, m.results_stride);
    }
}

// p[0]: Mixture. Items: rows.
void combine(const pk_step *, const pk_instr *in, int64_t begin, int64_t end, int) {
    const Mixture &m = mixture(in);
    const int64_t width = m.results_stride;
    for (int64_t r = begin; r < end; r++) {
        const int32_t *places = m.places + r * m.chosen;
        for (int64_t i = 0; i < width; i += 16) {
            F total = all(0.f);
            for (int64_t c = 0; c < m.chosen; c++)
                total = fma(all(m.weights[r * m.chosen + c]), load(m.results + places[c] * width + i), total);
            store(m.out + r * width + i, add(load(m.residual + r * width + i), total));
        }
    }
}

}  // namespace
