// Packed weight types: 16 output rows side by side, 32 columns to a block. Each type says how a block is loaded, how it
// is multiplied with int8 activations, and what its 32 x 16 values are. A new type is one struct here or in weights_k.h,
// and a function in pack_blocks.h. Here: what they share, types whose file blocks have 32 columns, floats.
#pragma once
#include "abi.h"
#include "dots.h"

namespace {

// 64 bytes hold two quads of columns of 16 rows: byte 4 * row + t is column 8i + t (low half) and 8i + 4 + t (high).
INLINE void load_nibbles(const uint8_t *p, B w[8]) {
    for (int i = 0; i < 4; i++) {
        B v = load_bytes(p + 64 * i);
        w[2 * i] = low_nibbles(v);
        w[2 * i + 1] = high_nibbles(v);
    }
}

// 5 bits: after the nibbles, byte 4 * row + t has the fifth bits of columns t, 4 + t, … 28 + t.
INLINE void load_fives(const uint8_t *p, B w[8]) {
    load_nibbles(p, w);
    B high = load_bytes(p + 256);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) w[j] = or_bits(w[j], move_bits(high, j, 4, 1));
}

// Nibbles that are places in a table of what is multiplied.
INLINE void load_entries(const uint8_t *p, const uint8_t *table, B w[8]) {
    load_nibbles(p, w);
    for (int j = 0; j < 8; j++) w[j] = look_up(table, w[j]);
}

INLINE F scales(const uint8_t *p) { return load_half((const uint16_t *)p); }

// A block's bytes have no sign, as the dot instruction wants them, and lie DIRECT in memory or have to be made. Its columns
// have one scale or, in PARTS, several; LESS is taken from every byte, of which MOST is the largest. `scaled`: acc and the
// dot products of all parts, in order.
template <int OFFSET, int MOST_> struct Centred {  // value = d * (byte - OFFSET)
    static constexpr int PARTS = 1, LESS = OFFSET, MOST = MOST_;
    static constexpr bool DIRECT = false;
    B w[8];
    F d;
    MEMBER F scaled(const I *dot, float xd, float, pk_sums, F acc) const { return fma(to_float(dot[0]), mul(d, all(xd)), acc); }
    MEMBER F value(int column) const {
        return mul(to_float(add(byte_of_lane(w[column / 4], column % 4), all_int(-OFFSET))), d);
    }
};

template <int MOST_> struct Raised {  // value = d * byte + m
    static constexpr int PARTS = 1, LESS = 0, MOST = MOST_;
    static constexpr bool DIRECT = false;
    B w[8];
    F d, m;
    MEMBER F scaled(const I *dot, float xd, float xs, pk_sums, F acc) const {
        acc = fma(to_float(dot[0]), mul(d, all(xd)), acc);
        return fma(m, all(xs), acc);
    }
    MEMBER F value(int column) const {
        return add(mul(to_float(byte_of_lane(w[column / 4], column % 4)), d), m);
    }
};

struct Q4_0 : Centred<8, 15> {
    static constexpr int64_t bytes = 288;
    static MEMBER Q4_0 load(const uint8_t *p) {
        Q4_0 b;
        load_nibbles(p, b.w);
        b.d = scales(p + 256);
        return b;
    }
};

struct Q4_1 : Raised<15> {
    static constexpr int64_t bytes = 320;
    static MEMBER Q4_1 load(const uint8_t *p) {
        Q4_1 b;
        load_nibbles(p, b.w);
        b.d = scales(p + 256);
        b.m = scales(p + 288);
        return b;
    }
};

struct Q5_0 : Centred<16, 31> {
    static constexpr int64_t bytes = 352;
    static MEMBER Q5_0 load(const uint8_t *p) {
        Q5_0 b;
        load_fives(p, b.w);
        b.d = scales(p + 320);
        return b;
    }
};

struct Q5_1 : Raised<31> {
    static constexpr int64_t bytes = 384;
    static MEMBER Q5_1 load(const uint8_t *p) {
        Q5_1 b;
        load_fives(p, b.w);
        b.d = scales(p + 320);
        b.m = scales(p + 352);
        return b;
    }
};

struct Q8_0 : Centred<128, 255> {
    static constexpr int64_t bytes = 544;
    static constexpr bool DIRECT = true;
    static MEMBER Q8_0 load(const uint8_t *p) {
        Q8_0 b;
        for (int j = 0; j < 8; j++) b.w[j] = load_bytes(p + 64 * j);
        b.d = scales(p + 512);
        return b;
    }
};

// 128 more than -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113.
const uint8_t IQ4_ENTRIES[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

struct IQ4_NL : Centred<128, 255> {
    static constexpr int64_t bytes = 288;
    static MEMBER IQ4_NL load(const uint8_t *p) {
        IQ4_NL b;
        load_entries(p, IQ4_ENTRIES, b.w);
        b.d = scales(p + 256);
        return b;
    }
};

// 12 more than twice what a number of 4 bits (sign, two of exponent, one of mantissa) is.
const uint8_t MXFP4_ENTRIES[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

struct MXFP4 : Centred<12, 24> {
    static constexpr int64_t bytes = 272;
    static MEMBER MXFP4 load(const uint8_t *p) {
        MXFP4 b;
        load_entries(p, MXFP4_ENTRIES, b.w);
        b.d = load_power(p + 256);
        return b;
    }
};

// acc and the block's dot product with a row's activations.
template <class W> MEMBER F add_dot(const W &b, const int8_t *q, float xd, float xs, pk_sums sums, F acc) {
    I dot[W::PARTS];
    if constexpr (W::PARTS == 1) {
        dot[0] = dots<W::MOST, W::LESS, 8>(b.w, q, sums.all);
    } else {
        dot[0] = dots<W::MOST, W::LESS, 4>(b.w, q, sums.first);
        dot[1] = dots<W::MOST, W::LESS, 4>(b.w + 4, q + 16, sums.all - sums.first);
    }
    return b.scaled(dot, xd, xs, sums, acc);
}

struct F16 {  // [column][row]
    static constexpr int64_t bytes = 1024;
    const uint16_t *p;
    static MEMBER F16 load(const uint8_t *p) { return {(const uint16_t *)p}; }
    MEMBER F value(int column) const { return load_half(p + 16 * column); }
};

struct BF16 {
    static constexpr int64_t bytes = 1024;
    const uint16_t *p;
    static MEMBER BF16 load(const uint8_t *p) { return {(const uint16_t *)p}; }
    MEMBER F value(int column) const { return load_bf16(p + 16 * column); }
};

struct F32 {
    static constexpr int64_t bytes = 2048;
    const float *p;
    static MEMBER F32 load(const uint8_t *p) { return {(const float *)p}; }
    MEMBER F value(int column) const { return ::load(p + 16 * column); }
};

}  // namespace
