// What a gate goes through before it multiplies `up`.
#pragma once
#include "simd.h"

// Kinds, in the order of `ACTIVATIONS` in recorder_experts.py.
enum { PK_SILU = 0, PK_GELU = 1, PK_CLAMPED = 2 };

namespace {

// x / (1 + e^-exponent).
INLINE F times_sigmoid(F x, F exponent) { return div(x, add(all(1.f), exp(sub(all(0.f), exponent)))); }

INLINE F sigmoid(F x) { return times_sigmoid(all(1.f), x); }

INLINE F tanh(F x) { return sub(mul(all(2.f), sigmoid(mul(all(2.f), x))), all(1.f)); }

// silu: x sigmoid(x). gelu in its tanh form: x / 2 (1 + tanh u) is x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x³).
// clamped: x sigmoid(1.702 x) of an x of at most 7.
INLINE F activated(int64_t kind, F x) {
    if (kind == PK_SILU) return times_sigmoid(x, x);
    if (kind == PK_CLAMPED) {
        x = min(x, all(7.f));
        return times_sigmoid(x, mul(all(1.702f), x));
    }
    return times_sigmoid(x, mul(mul(all(1.5957691216f), x), fma(mul(all(0.044715f), x), x, all(1.f))));
}

// activated(gate) * up; clamped: up within -7 … 7, and 1 more.
INLINE F gated_product(int64_t kind, F gate, F up) {
    if (kind == PK_CLAMPED) up = add(min(max(up, all(-7.f)), all(7.f)), all(1.f));
    return mul(activated(kind, gate), up);
}

}  // namespace
