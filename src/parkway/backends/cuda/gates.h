// What a gate goes through, times an up, as `linear_plain.product` computes it: in the same order.
#pragma once

#include "ptx.h"

// `kind`: as `linear_config.GATES` numbers them.
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
