// Gated delta nets. Positions are cut into blocks of 16; S, the state of a head, is kept as it was at the last anchor
// (position 0, 16, 32, …), beside keys, u and log-decays of the rows since. Row i of a block is a fixed function of S and of
// rows 0 … i, in rising order, and a whole block moves S to the next anchor. Threads and groups of rows only share loads.
#pragma once
#include "activation.h"
#include "rows.h"

namespace {

constexpr int BLOCK = 16;  // rows between two anchors: the lanes of a vector
constexpr int GROUP_ROWS = 4;  // rows that share one load of S: two sums each

// What one slot keeps of one layer, as floats: S [v_heads, k_dim, v_dim], keys [k_heads, k_dim, BLOCK],
// u [v_heads, BLOCK, v_dim], running log-decay [v_heads, BLOCK], inputs of the convolution [taps - 1, channels], the one
// of position p at p % (taps - 1). What is there is only read where the row's position says that its chat has written it.
struct States {
    int64_t k_heads, v_heads, k_dim, v_dim, taps, tiled, slot_floats, layer_floats, layer;
    float *memory;
    // The n-th of the heads of v that share a head of k.
    int64_t v_head(int64_t k_head, int64_t n) const {
        return tiled ? n * k_heads + k_head : k_head * (v_heads / k_heads) + n;
    }
    int64_t k_width() const { return k_heads * k_dim; }
    int64_t v_width() const { return v_heads * v_dim; }
    int64_t channels() const { return 2 * k_width() + v_width(); }
    float *matrix(int64_t slot, int64_t v_head) const {
        return memory + slot * slot_floats + layer * layer_floats + v_head * k_dim * v_dim;
    }
    float *keys(int64_t slot, int64_t k_head) const { return matrix(slot, v_heads) + k_head * k_dim * BLOCK; }
    float *u(int64_t slot, int64_t v_head) const { return keys(slot, k_heads) + v_head * BLOCK * v_dim; }
    float *decays(int64_t slot, int64_t v_head) const { return u(slot, v_heads) + v_head * BLOCK; }
    float *input(int64_t slot, int64_t position) const {
        return decays(slot, v_heads) + position % (taps - 1) * channels();
    }
};

INLINE F silu(F x) { return times_sigmoid(x, x); }
INLINE float sigmoid(float x) { return (float)(1. / (1. + ::exp(-(double)x))); }
INLINE float softplus(float x) { return x > 20.f ? x : (float)log1p(::exp((double)x)); }

// Inputs of the convolution at a row's own position, the one before it, and so on; null before position 0. `from` is the
// input's channel 0 of row 0, `at` the channel's place among those of q, k and v.
INLINE const float *input_of(const States &states, const pk_batch *batch, int64_t r, int64_t back, const float *from, int64_t stride,
                             int64_t at) {
    const int64_t position = batch->positions[r] - back, slot = batch->slots[r];
    if (position < 0) return nullptr;
    if (back <= r && batch->slots[r - back] == slot) return from + (r - back) * stride;
    return states.input(slot, position) + at;
}

// silu of the convolution over one row's `width` channels from channel `at` on; taps are summed from the oldest.
INLINE void convolve(const States &states, const pk_batch *batch, int64_t r, const float *from, int64_t stride, int64_t at,
                     const float *weights, int64_t width, float *out) {
    const float *inputs[16];
    for (int64_t t = 0; t < states.taps; t++) inputs[t] = input_of(states, batch, r, t, from, stride, at);
    for (int64_t c = 0; c < width; c += 16) {
        F sum = all(0.f);
        for (int64_t t = states.taps - 1; t >= 0; t--)
            if (inputs[t]) sum = fma(load(inputs[t] + c), load(weights + (states.taps - 1 - t) * states.channels() + at + c), sum);
        store(out + c, silu(sum));
    }
}

// x * scale / sqrt(sum of squares + epsilon)
INLINE void to_unit(float *x, int64_t dim, float epsilon, float scale) {
    F squares = all(0.f);
    for (int64_t i = 0; i < dim; i += 16) squares = fma(load(x + i), load(x + i), squares);
    F by = all(scale / sqrtf(sum(squares) + epsilon));
    for (int64_t i = 0; i < dim; i += 16) store(x + i, mul(load(x + i), by));
}

// p[0..2]: q, k, v with strides n0, n1, n2; p[3]: out [rows, channels]: q, k and v of the delta rule; p[4]: States;
// p[5]: weights [taps, channels], the oldest tap first; f[0]: epsilon.
void delta_inputs(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const States &states = *(const States *)in->p[4];
    const float *weights = (const float *)in->p[5];
    const int64_t widths[3] = {states.k_width(), states.k_width(), states.v_width()};
    for (int64_t r = begin; r < end; r++) {
        float *out = (float *)in->p[3] + r * states.channels();
        for (int64_t part = 0, at = 0; part < 3; at += widths[part++])
            convolve(states, step->batch, r, (const float *)in->p[part], in->n[part], at, weights, widths[part], out + at);
        for (int64_t h = 0; h < states.k_heads; h++) {
            to_unit(out + h * states.k_dim, states.k_dim, in->f[0], 1.f / sqrtf((float)states.k_dim));
            to_unit(out + states.k_width() + h * states.k_dim, states.k_dim, in->f[0], 1.f);
        }
    }
}

// Rows of one chat in one block: `first` is the place of the first in the block, `row` in the step.
struct Rows16 {
    int64_t row, slot, first, count;
    bool from_zero;  // the block is its chat's first: S is zero, whatever memory holds
};

// For N rows: sums over d, in rising order, of lanes[d * stride …] * q[d], and of the same * k[d].
template <int N> INLINE void sums(const float *lanes, int64_t stride, const float *q, const float *k, int64_t hop, int64_t dim, F *of_q, F *of_k) {
    for (int i = 0; i < N; i++) of_q[i] = of_k[i] = all(0.f);
    for (int64_t d = 0; d < dim; d++) {
        F x = load(lanes + d * stride);
#pragma GCC unroll 4
        for (int i = 0; i < N; i++) {
            of_q[i] = fma(x, all(q[i * hop + d]), of_q[i]);
            of_k[i] = fma(x, all(k[i * hop + d]), of_k[i]);
        }
    }
}

// The same for up to 16 rows; of_q and of_k [count, 16].
INLINE void all_sums(const float *lanes, int64_t stride, const float *q, const float *k, int64_t hop, int64_t dim, int64_t count,
                     float *of_q, float *of_k) {
    F a[GROUP_ROWS], b[GROUP_ROWS];
    int64_t i = 0;
    for (; i + GROUP_ROWS <= count; i += GROUP_ROWS) {
        sums<GROUP_ROWS>(lanes, stride, q + i * hop, k + i * hop, hop, dim, a, b);
        for (int j = 0; j < GROUP_ROWS; j++) store(of_q + (i + j) * 16, a[j]), store(of_k + (i + j) * 16, b[j]);
    }
    for (; i < count; i++) {
        sums<1>(lanes, stride, q + i * hop, k + i * hop, hop, dim, a, b);
        store(of_q + i * 16, a[0]), store(of_k + i * 16, b[0]);
    }
}

// What a row takes of S and of the block's rows up to its own, and how much of what is wrong it writes.
struct Shares {
    float of_q[BLOCK][BLOCK], of_k[BLOCK][BLOCK], decay[BLOCK], beta[BLOCK];
};

// Adds the rows' log-decays to those of the block; scores are e^(G_i - G_j) times the products of keys and queries.
INLINE void share_out(const States &states, const pk_instr *in, const Rows16 &rows, int64_t v_head, const float (*qk)[BLOCK],
                      const float (*kk)[BLOCK], Shares *out) {
    float *decays = states.decays(rows.slot, v_head);
    const float by = ((const float *)in->p[5])[v_head], bias = ((const float *)in->p[6])[v_head];
    for (int64_t i = 0; i < rows.count; i++) {
        const int64_t at = rows.first + i;
        const float a = ((const float *)in->p[1] + (rows.row + i) * in->n[0])[v_head];
        const float before = at ? decays[at - 1] : 0.f;
        decays[at] = before + by * softplus(a + bias);
        out->beta[i] = sigmoid(((const float *)in->p[2] + (rows.row + i) * in->n[1])[v_head]);
        float lanes[16];
        store(lanes, exp(all(decays[at])));
        out->decay[i] = lanes[0];
        F decayed = exp(sub(all(decays[at]), load(decays)));
        store(out->of_q[i], mul(decayed, load(qk[i])));
        store(out->of_k[i], mul(decayed, load(kk[i])));
    }
}

// u and the results of all rows, 16 lanes of v_dim at a time.
INLINE void walk(const States &states, const Rows16 &rows, int64_t v_head, const float *q, const float *k, const Shares &shares,
                 const float *v, float *out, int64_t out_stride) {
    const float *matrix = states.matrix(rows.slot, v_head);
    float of_q[BLOCK][16], of_k[BLOCK][16];
    for (int64_t lane = 0; lane < states.v_dim; lane += 16) {
        if (rows.from_zero) memset(of_q, 0, sizeof of_q), memset(of_k, 0, sizeof of_k);
        else all_sums(matrix + lane, states.v_dim, q, k, states.channels(), states.k_dim, rows.count, of_q[0], of_k[0]);
        float *u = states.u(rows.slot, v_head) + lane;
        for (int64_t i = 0; i < rows.count; i++) {
            F wrong = fma(all(-shares.decay[i]), load(of_k[i]), load(v + i * states.channels() + lane));
            F made = mul(all(shares.decay[i]), load(of_q[i]));
            for (int64_t j = 0; j < rows.first + i; j++) {
                F written = load(u + j * states.v_dim);
                wrong = fma(all(-shares.of_k[i][j]), written, wrong);
                made = fma(all(shares.of_q[i][j]), written, made);
            }
            F own = mul(all(shares.beta[i]), wrong);
            store(u + (rows.first + i) * states.v_dim, own);
            store(out + i * out_stride + lane, fma(all(shares.of_q[i][rows.first + i]), own, made));
        }
    }
}

// S at the next anchor: e^(G_15) S + the sum over j of e^(G_15 - G_j) k_j u_j, j rising.
INLINE void move_anchor(const States &states, const Rows16 &rows, int64_t k_head, int64_t v_head) {
    const float *keys = states.keys(rows.slot, k_head), *decays = states.decays(rows.slot, v_head);
    float lanes[16];
    store(lanes, exp(all(decays[BLOCK - 1])));
    const F decay = all(lanes[0]), decayed = exp(sub(all(decays[BLOCK - 1]), load(decays)));
    for (int64_t lane = 0; lane < states.v_dim; lane += 16) {
        float *matrix = states.matrix(rows.slot, v_head) + lane;
        F u[BLOCK];
        for (int j = 0; j < BLOCK; j++) u[j] = load(states.u(rows.slot, v_head) + j * states.v_dim + lane);
        for (int64_t d = 0; d < states.k_dim; d++, matrix += states.v_dim) {
            store(lanes, mul(decayed, load(keys + d * BLOCK)));
            F sum = rows.from_zero ? all(0.f) : mul(decay, load(matrix));
#pragma GCC unroll 16
            for (int j = 0; j < BLOCK; j++) sum = fma(all(lanes[j]), u[j], sum);
            store(matrix, sum);
        }
    }
}

INLINE void keep_keys(const States &states, const Rows16 &rows, int64_t k_head, const float *k) {
    float *keys = states.keys(rows.slot, k_head) + rows.first;
    for (int64_t i = 0; i < rows.count; i++)
        for (int64_t d = 0; d < states.k_dim; d++) keys[d * BLOCK + i] = k[i * states.channels() + d];
}

INLINE void do_block(const States &states, const pk_instr *in, const Rows16 &rows, int64_t k_head) {
    const float *row = (const float *)in->p[0] + rows.row * states.channels(), *q = row + k_head * states.k_dim;
    const float *k = q + states.k_width(), *v = row + 2 * states.k_width();
    keep_keys(states, rows, k_head, k);
    float qk[BLOCK][BLOCK], kk[BLOCK][BLOCK];
    all_sums(states.keys(rows.slot, k_head), BLOCK, q, k, states.channels(), states.k_dim, rows.count, qk[0], kk[0]);
    for (int64_t n = 0; n < states.v_heads / states.k_heads; n++) {
        const int64_t h = states.v_head(k_head, n);
        Shares shares;
        share_out(states, in, rows, h, qk, kk, &shares);
        float *out = (float *)in->p[3] + rows.row * in->n[2] + h * states.v_dim;
        walk(states, rows, h, q, k, shares, v + h * states.v_dim, out, in->n[2]);
        if (rows.first + rows.count == BLOCK) move_anchor(states, rows, k_head, h);
    }
}

// p[0]: what delta_inputs made; p[1], p[2]: a and b with strides n0 and n1; p[3]: out with stride n2; p[4]: States;
// p[5], p[6]: decay and bias. Items: (run of one chat's rows, head of k).
void delta_net(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const States &states = *(const States *)in->p[4];
    for (int64_t item = begin; item < end; item++) {
        const pk_tile run = step->runs[item / states.k_heads];
        for (int64_t r = run.row, last = run.row + run.rows, count; r < last; r += count) {
            const int64_t position = step->batch->positions[r], first = position % BLOCK;
            count = last - r < BLOCK - first ? last - r : BLOCK - first;
            do_block(states, in, {r, step->batch->slots[r], first, count, position < BLOCK}, item % states.k_heads);
        }
    }
}

// Keeps the last inputs of the convolution, when nobody needs those before them any more. p[0..2], n[0..2] and p[4] as
// delta_inputs has them. Items: runs.
void keep_inputs(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const States &states = *(const States *)in->p[4];
    const int64_t widths[3] = {states.k_width(), states.k_width(), states.v_width()};
    for (int64_t item = begin; item < end; item++) {
        const pk_tile run = step->runs[item];
        for (int64_t i = run.rows < states.taps ? 0 : run.rows - states.taps + 1; i < run.rows; i++) {
            const int64_t r = run.row + i;
            float *kept = states.input(step->batch->slots[r], step->batch->positions[r]);
            for (int64_t part = 0; part < 3; kept += widths[part++])
                memcpy(kept, (const float *)in->p[part] + r * in->n[part], widths[part] * sizeof(float));
        }
    }
}

// p[0]: x, p[1]: gate, p[2]: weight [n3], p[3]: pk_rows out, f always, q where it is not null; n0, n1: strides of x and
// gate; n2: width; f[0]: epsilon.
void gated_norm(const pk_step *step, const pk_instr *in, int64_t begin, int64_t end, int) {
    const pk_rows *out = (const pk_rows *)in->p[3];
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)in->p[0] + r * in->n[0], *gate = (const float *)in->p[1] + r * in->n[1];
        float *y = out->f + r * out->k;
        for (int64_t c = 0; c < in->n[2]; c += in->n[3]) norm(x + c, (const float *)in->p[2], in->f[0], in->n[3], y + c);
        for (int64_t c = 0; c < in->n[2]; c += 16) store(y + c, mul(load(y + c), silu(load(gate + c))));
    }
    if (out->q) quantise_rows(out, out->f + begin * out->k, begin, end, rows_of(step, in));
}

}  // namespace
