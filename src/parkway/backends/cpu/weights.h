// Packed weight types: 16 output rows side by side, 32 columns to a block. Each type says how a block is loaded, how it
// is multiplied with int8 activations, and what its 32 x 16 values are. A new type is one struct here and one in pack.cpp.
#pragma once
#include "abi.h"
#include "simd.h"

#define MEMBER inline __attribute__((always_inline))

namespace {

INLINE int32_t quad(const int8_t *q, int j) { int32_t x; memcpy(&x, q + 4 * j, 4); return x; }

// 64 bytes hold two quads of columns of 16 rows: byte 4 * row + t is column 8i + t (low half) and 8i + 4 + t (high).
INLINE void load_nibbles(const uint8_t *p, B w[8]) {
    for (int i = 0; i < 4; i++) {
        B v = load_bytes(p + 64 * i);
        w[2 * i] = low_nibbles(v);
        w[2 * i + 1] = high_nibbles(v);
    }
}

INLINE I dot_nibbles(I acc, const B w[8], const int8_t *q) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) acc = dot_small(acc, w[j], quad(q, j));
    return acc;
}

INLINE void scales(const uint8_t *p, F *d) { *d = load_half((const uint16_t *)p); }

struct Q4_1 {  // value = d * q + m
    static constexpr int64_t bytes = 320;
    B w[8];
    F d, m;
    INLINE Q4_1 load(const uint8_t *p) {
        Q4_1 b;
        load_nibbles(p, b.w);
        scales(p + 256, &b.d);
        scales(p + 288, &b.m);
        return b;
    }
    MEMBER F add_dot(const int8_t *q, float xd, float xs, int32_t, F acc) const {
        F f = to_float(dot_nibbles(all_int(0), w, q));
        acc = fma(f, mul(d, all(xd)), acc);
        return fma(m, all(xs), acc);
    }
    MEMBER F value(int column) const {
        return add(mul(to_float(byte_of_lane(w[column / 4], column % 4)), d), m);
    }
};

struct Q4_0 {  // value = d * (q - 8)
    static constexpr int64_t bytes = 288;
    B w[8];
    F d;
    INLINE Q4_0 load(const uint8_t *p) {
        Q4_0 b;
        load_nibbles(p, b.w);
        scales(p + 256, &b.d);
        return b;
    }
    MEMBER F add_dot(const int8_t *q, float xd, float, int32_t total, F acc) const {
        F f = to_float(dot_nibbles(all_int(-8 * total), w, q));
        return fma(f, mul(d, all(xd)), acc);
    }
    MEMBER F value(int column) const {
        return mul(to_float(add(byte_of_lane(w[column / 4], column % 4), all_int(-8))), d);
    }
};

struct Q8_0 {  // value = d * (byte - 128): stored unsigned, as the dot instruction wants it
    static constexpr int64_t bytes = 544;
    B w[8];
    F d;
    INLINE Q8_0 load(const uint8_t *p) {
        Q8_0 b;
        for (int j = 0; j < 8; j++) b.w[j] = load_bytes(p + 64 * j);
        scales(p + 512, &b.d);
        return b;
    }
    MEMBER F add_dot(const int8_t *q, float xd, float, int32_t total, F acc) const {
        I i = all_int(-128 * total);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) i = dot(i, w[j], quad(q, j));
        return fma(to_float(i), mul(d, all(xd)), acc);
    }
    MEMBER F value(int column) const {
        return mul(to_float(add(byte_of_lane(w[column / 4], column % 4), all_int(-128))), d);
    }
};

struct F16 {  // [column][row]
    static constexpr int64_t bytes = 1024;
    const uint16_t *p;
    INLINE F16 load(const uint8_t *p) { return {(const uint16_t *)p}; }
    MEMBER F value(int column) const { return load_half(p + 16 * column); }
};

struct F32 {
    static constexpr int64_t bytes = 2048;
    const float *p;
    INLINE F32 load(const uint8_t *p) { return {(const float *)p}; }
    MEMBER F value(int column) const { return ::load(p + 16 * column); }
};

}  // namespace
