// Packed weight types whose file blocks have 256 columns: d (and the step of the minima, kept negative) is one for eight
// packed blocks, and each of them repeats it.
#pragma once
#include "weights.h"

namespace {

// value = (d * scale) * q + (-dmin * least)
template <int MOST> INLINE void load_scaled(const uint8_t *p, Raised<MOST> &b) {
    b.d = mul(scales(p), to_float(load_uint8(p + 64)));
    b.m = mul(scales(p + 32), to_float(load_uint8(p + 80)));
}

struct Q4_K : Raised<15> {
    static constexpr int64_t bytes = 352;
    static MEMBER Q4_K load(const uint8_t *p) {
        Q4_K b;
        load_nibbles(p, b.w);
        load_scaled(p + 256, b);
        return b;
    }
};

struct Q5_K : Raised<31> {
    static constexpr int64_t bytes = 416;
    static MEMBER Q5_K load(const uint8_t *p) {
        Q5_K b;
        load_fives(p, b.w);
        load_scaled(p + 320, b);
        return b;
    }
};

struct IQ4_XS : Centred<128, 255> {
    static constexpr int64_t bytes = 304;
    static MEMBER IQ4_XS load(const uint8_t *p) {
        IQ4_XS b;
        load_entries(p, IQ4_ENTRIES, b.w);
        b.d = mul(scales(p + 256), to_float(load_int8(p + 288)));
        return b;
    }
};

// The first 16 columns and the last have scales of their own: value = (d * scale) * (byte - OFFSET).
template <int OFFSET, int MOST_> struct Halves {
    static constexpr int PARTS = 2, LESS = OFFSET, MOST = MOST_;
    static constexpr bool DIRECT = false;
    B w[8];
    F d[2];
    MEMBER F scaled(const I *dot, float xd, float, pk_sums, F acc) const {
        acc = fma(to_float(dot[0]), mul(d[0], all(xd)), acc);
        return fma(to_float(dot[1]), mul(d[1], all(xd)), acc);
    }
    MEMBER F value(int column) const {
        return mul(to_float(add(byte_of_lane(w[column / 4], column % 4), all_int(-OFFSET))), d[column / 16]);
    }
};

INLINE void load_signed_scales(const uint8_t *p, F d[2]) {
    for (int half = 0; half < 2; half++) d[half] = mul(scales(p), to_float(load_int8(p + 32 + 16 * half)));
}

// 2 bits: byte 4 * row + t has those of columns t, 4 + t, 8 + t and 12 + t, 64 bytes further those of the last 16.
INLINE void load_pairs(const uint8_t *p, int to, B w[8]) {
    B pairs[2] = {load_bytes(p), load_bytes(p + 64)};
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) w[j] = move_bits(pairs[j / 4], 2 * (j % 4), to, 2);
}

struct Q6_K : Halves<32, 63> {
    static constexpr int64_t bytes = 448;
    static MEMBER Q6_K load(const uint8_t *p) {
        Q6_K b;
        B high[8];
        load_nibbles(p, b.w);
        load_pairs(p + 256, 4, high);
        for (int j = 0; j < 8; j++) b.w[j] = or_bits(b.w[j], high[j]);
        load_signed_scales(p + 384, b.d);
        return b;
    }
};

struct Q3_K : Halves<4, 7> {
    static constexpr int64_t bytes = 256;
    static MEMBER Q3_K load(const uint8_t *p) {
        Q3_K b;
        load_pairs(p, 0, b.w);
        B high = load_bytes(p + 128);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) b.w[j] = or_bits(b.w[j], move_bits(high, j, 2, 1));
        load_signed_scales(p + 192, b.d);
        return b;
    }
};

struct Q2_K {  // value = (d * scale) * q + (-dmin * least), a scale and a least for 16 columns, of 4 bits each
    static constexpr int64_t bytes = 224;
    static constexpr int PARTS = 2, LESS = 0, MOST = 3;
    static constexpr bool DIRECT = false;
    B w[8];
    F d[2], m[2];
    static MEMBER Q2_K load(const uint8_t *p) {
        Q2_K b;
        load_pairs(p, 0, b.w);
        for (int half = 0; half < 2; half++) {
            I both = load_uint8(p + 192 + 16 * half);
            b.d[half] = mul(scales(p + 128), to_float(low_nibbles(both)));
            b.m[half] = mul(scales(p + 160), to_float(high_nibbles(both)));
        }
        return b;
    }
    MEMBER F scaled(const I *dot, float xd, float xs, pk_sums sums, F acc) const {
        F first_xs = all((float)sums.first * xd);
        acc = fma(to_float(dot[0]), mul(d[0], all(xd)), acc);
        acc = fma(m[0], first_xs, acc);
        acc = fma(to_float(dot[1]), mul(d[1], all(xd)), acc);
        return fma(m[1], sub(all(xs), first_xs), acc);
    }
    MEMBER F value(int column) const {
        return add(mul(to_float(byte_of_lane(w[column / 4], column % 4)), d[column / 16]), m[column / 16]);
    }
};

}  // namespace
