// Operations on each value of a row by itself, and the sum of a norm and a residual.
#pragma once
#include "rows.h"

namespace {

// p[0]: in [rows, n0]; p[1]: weight [n0]; p[2]: out [rows, n0]; p[3]: residual [rows, n0]; f[0]: epsilon.
void norm_add(const pk_step *, const pk_instr *in, int64_t begin, int64_t end, int) {
    const int64_t width = in->n[0];
    for (int64_t r = begin; r < end; r++) {
        float *y = (float *)in->p[2] + r * width;
        const float *residual = (const float *)in->p[3] + r * width;
        norm((const float *)in->p[0] + r * width, (const float *)in->p[1], in->f[0], width, y);
        for (int64_t i = 0; i < width; i += 16) store(y + i, add(load(residual + i), load(y + i)));
    }
}

// p[0]: x [rows, n0]; p[1]: residual [rows, n0]; p[2]: out.
void add_rows(const pk_step *, const pk_instr *in, int64_t begin, int64_t end, int) {
    const float *x = (const float *)in->p[0], *residual = (const float *)in->p[1];
    float *out = (float *)in->p[2];
    for (int64_t i = begin * in->n[0]; i < end * in->n[0]; i += 16) store(out + i, add(load(residual + i), load(x + i)));
}

// p[0]: x [rows, n0]; p[1]: gate [rows, n1], of which the row has one value only unless n2; p[2]: out [rows, n0].
void sigmoid_gate(const pk_step *, const pk_instr *in, int64_t begin, int64_t end, int) {
    const int64_t width = in->n[0];
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)in->p[0] + r * width, *gate = (const float *)in->p[1] + r * in->n[1];
        float *out = (float *)in->p[2] + r * width;
        for (int64_t i = 0; i < width; i += 16)
            store(out + i, mul(load(x + i), sigmoid(in->n[2] ? load(gate + i) : all(*gate))));
    }
}

// p[0]: logits [rows, n0], in place; f[0]: cap.
void soft_cap(const pk_step *, const pk_instr *in, int64_t begin, int64_t end, int) {
    float *x = (float *)in->p[0];
    for (int64_t i = begin * in->n[0]; i < end * in->n[0]; i += 16)
        store(x + i, mul(tanh(div(load(x + i), all(in->f[0]))), all(in->f[0])));
}

}  // namespace
