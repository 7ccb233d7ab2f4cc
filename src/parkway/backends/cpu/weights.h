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

struct Q4_K {  // value = (d * scale) * q - dmin * least; eight blocks share d and dmin, which each repeats
    static constexpr int64_t bytes = 352;
    B w[8];
    F d, m;
    INLINE Q4_K load(const uint8_t *p) {
        Q4_K b;
        load_nibbles(p, b.w);
        scales(p + 256, &b.d);
        scales(p + 288, &b.m);
        b.d = mul(b.d, to_float(load_uint8(p + 320)));
        b.m = mul(b.m, to_float(load_uint8(p + 336)));
        return b;
    }
    MEMBER F add_dot(const int8_t *q, float xd, float xs, int32_t, F acc) const {
        F f = to_float(dot_nibbles(all_int(0), w, q));
        acc = fma(f, mul(d, all(xd)), acc);
        return fma(m, all(-xs), acc);
    }
    MEMBER F value(int column) const {
        return sub(mul(to_float(byte_of_lane(w[column / 4], column % 4)), d), m);
    }
};

struct Q6_K {  // value = (d * scale) * (q - 32); a scale for 16 columns, d for eight blocks, which each repeats
    static constexpr int64_t bytes = 448;
    B w[8];
    F d[2];
    INLINE Q6_K load(const uint8_t *p) {
        Q6_K b;
        load_nibbles(p, b.w);
        B high[2] = {load_bytes(p + 256), load_bytes(p + 320)};
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) b.w[j] = or_bits(b.w[j], bits_for_nibbles(high[j / 4], j % 4));
        F size;
        scales(p + 384, &size);
        for (int half = 0; half < 2; half++) b.d[half] = mul(size, to_float(load_int8(p + 416 + 16 * half)));
        return b;
    }
    MEMBER F add_dot(const int8_t *q, float xd, float, int32_t total, F acc) const {
        I first = all_int(0), second = all_int(0), offset = all_int(0);  // offset: 32 times the sum of the first 16
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            first = dot_small(first, w[j], quad(q, j));
            second = dot_small(second, w[j + 4], quad(q, j + 4));
            offset = dot_small(offset, all_bytes(32), quad(q, j));
        }
        acc = fma(to_float(sub(first, offset)), mul(d[0], all(xd)), acc);
        return fma(to_float(add(second, sub(offset, all_int(32 * total)))), mul(d[1], all(xd)), acc);
    }
    MEMBER F value(int column) const {
        return mul(to_float(add(byte_of_lane(w[column / 4], column % 4), all_int(-32))), d[column / 16]);
    }
};

struct F16 {  // [column][row]
    static constexpr int64_t bytes = 1024;
    const uint16_t *p;
    INLINE F16 load(const uint8_t *p) { return {(const uint16_t *)p}; }
    MEMBER F value(int column) const { return load_half(p + 16 * column); }
};

struct BF16 {
    static constexpr int64_t bytes = 1024;
    const uint16_t *p;
    INLINE BF16 load(const uint8_t *p) { return {(const uint16_t *)p}; }
    MEMBER F value(int column) const { return load_bf16(p + 16 * column); }
};

struct F32 {
    static constexpr int64_t bytes = 2048;
    const float *p;
    INLINE F32 load(const uint8_t *p) { return {(const float *)p}; }
    MEMBER F value(int column) const { return ::load(p + 16 * column); }
};

}  // namespace
