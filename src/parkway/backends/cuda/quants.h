// Packed quantised weights: codes and scales of a half tile → weights. quantised_pack.py writes them.
//
// Every weight but a Q4_K's is the float32 that the file's format defines (but for the sign of a zero of Q4_0 and Q3_K),
// rounded once to bf16. A scale times a code is exact in float32 for every type here, so one fused multiply-add rounds
// as a product and a sum do. Weights of MXFP4 are bf16 as they are.
//
// A Q4_K's weight, by its format d * q - m, is (q - 8) * bf16(d) + bf16(8 * d - m), rounded once to bf16. d and m, a
// block's half times an integer of 6 bits, are exact in float32; 8 * d - m is a float32 before it is a bf16. That takes
// two instructions for two weights, where float32 takes five, and is off by at most
// 2^-8 * (|q - 8| * |d| + |8 * d - m| + |weight|).
//
// Whoever wants weights needs a type, its BYTES, `load` and `pairs`; for several bands at once, `Bands`.
#pragma once

#include "codes.h"
#include "ptx.h"

// Scales of a half tile. Rows' scales lie behind the codes, those of a row's two halves side by side.

// A half for 32 columns.
struct Halves {
    static constexpr int BYTES = 128;
    uint2 halves;

    DEVICE void load(const u8 *at, int half, int lane) { halves = *(const uint2 *)(at + lane / 4 * 16 + half * 8); }
    DEVICE u32 word(int step) const { return step < 4 ? halves.x : halves.y; }
    DEVICE float scale(int step) const { return half_of(word(step), step / 2 % 2); }
};

// Two halves for 32 columns: scale and origin.
struct HalfPairs {
    static constexpr int BYTES = 256;
    u32 words[4];

    DEVICE void load(const u8 *at, int half, int lane) { load_words(words, at + lane / 4 * 32 + half * 16); }
    DEVICE float scale(int step) const { return half_of(words[step / 2], 0); }
    DEVICE float origin(int step) const { return half_of(words[step / 2], 1); }
};

// A signed byte for 16 columns, a half for all.
struct SignedBytes {
    static constexpr int BYTES = 144;
    uint2 bytes;
    float whole;

    DEVICE void load(const u8 *at, int half, int lane) {
        bytes = *(const uint2 *)(at + lane / 4 * 16 + half * 8);
        whole = from_half(*(const u16 *)(at + 128 + lane / 4 * 2));
    }

    DEVICE float scale(int step) const { return __fmul_rn(whole, signed_byte(step < 4 ? bytes.x : bytes.y, step % 4)); }
};

// Bytes of scales and of minima for COLUMNS columns; a half of either for all.
template <int COLUMNS> struct BytePairs {
    static constexpr int WORDS = 32 / COLUMNS, ROW = WORDS * 16, BYTES = BAND * ROW + 32;
    u32 words[2 * WORDS];
    float whole, least;

    DEVICE void load(const u8 *at, int half, int lane) {
        load_words(words, at + lane / 4 * ROW + half * (ROW / 2));
        u32 pair = *(const u32 *)(at + BAND * ROW + lane / 4 * 4);
        whole = __fmul_rn(half_of(pair, 0), 1 / LEAST_HALF), least = __fmul_rn(half_of(pair, 1), -1 / LEAST_HALF);
    }

    DEVICE float of(int first, int step) const {
        int group = step * 16 / COLUMNS;
        return small_byte(words[first + group / 4], group % 4);
    }

    DEVICE float scale(int step) const { return __fmul_rn(whole, of(0, step)); }
    DEVICE float origin(int step) const { return __fmul_rn(least, of(WORDS, step)); }
};

template <class Codes, class Scales> struct Quants {
    static constexpr int BYTES = Codes::BYTES + Scales::BYTES;
    Codes codes;
    Scales scales;

    DEVICE void load(const u8 *tile, int half, int lane) {
        codes.load(tile, half, lane), scales.load(tile + Codes::BYTES, half, lane);
    }
};

template <class Codes, class Scales> struct Scaled : Quants<Codes, Scales> {
    DEVICE float weight(int step, int i) const { return __fmul_rn(this->scales.scale(step), this->codes.value(step, i)); }
};

template <int ORIGIN, class Scales> struct Centred : Quants<Nibbles, Scales> {
    DEVICE float weight(int step, int i) const {
        float scale = this->scales.scale(step);
        return this->codes.weight(step, i, scale, __fmul_rn(scale, -ORIGIN));
    }
};

template <class Codes, class Scales> struct Lined : Quants<Codes, Scales> {
    DEVICE float weight(int step, int i) const {
        return this->codes.weight(step, i, this->scales.scale(step), this->scales.origin(step));
    }
};

using Q4_0 = Centred<8, Halves>;
using Q4_1 = Lined<Nibbles, HalfPairs>;
using Q5_0 = Scaled<SixBits<16>, Halves>;
using Q5_1 = Lined<SixBits<0>, HalfPairs>;
using Q8_0 = Scaled<Bytes, Halves>;
using Q2_K = Lined<Nibbles, BytePairs<16>>;
using Q3_K = Centred<4, SignedBytes>;
using Q5_K = Lined<SixBits<0>, BytePairs<32>>;
using Q6_K = Scaled<SixBits<32>, SignedBytes>;
using IQ4_NL = Scaled<Named, Halves>;
using IQ4_XS = Scaled<Named, SignedBytes>;

// What makes weights of a Q4_K's quants of 32 columns lies in its tile: 2^8 * d and 8 * d - m, each a bf16. No half is so
// large or so small that 2^8 * d leaves the range of a bf16.
struct Q4_K : Quants<Nibbles, HalfPairs> {
    // Two masked quants are the fractions of subnormal bf16, or reach into the exponents of the least normal ones:
    // either way they count 2^-133. They become (quant - 8) * 2^-8 exactly.
    DEVICE u32 two(int step, bool high) const {
        u32 line = scales.words[step / 2], by = high ? 0x7c007c00u : 0x7e007e00u;  // 2^121, 2^125
        u32 small = fma_bf16_pair(codes.two(step, high), by, 0xbd00bd00u);
        return fma_bf16_pair(small, low_twice(line), high_twice(line));
    }
};

// A scale is a bf16 for 32 columns here.
struct MXFP4 : Quants<Fours, Halves> {
    DEVICE u32 two(int step, bool high) const {
        u32 word = scales.word(step), scale = step / 2 % 2 ? high_twice(word) : low_twice(word);
        return fma_bf16_pair(codes.two(step, high), scale, 0);
    }
};

// A lane's four values of a step: columns 2c, 2c + 1 and 2c + 8, 2c + 9.
template <class Type> DEVICE void pairs(const Type &half, int step, u32 &low, u32 &high) {
    low = to_bf16_pair(half.weight(step, 0), half.weight(step, 1));
    high = to_bf16_pair(half.weight(step, 2), half.weight(step, 3));
}

DEVICE void pairs(const Q4_K &half, int step, u32 &low, u32 &high) {
    low = half.two(step, false), high = half.two(step, true);
}

DEVICE void pairs(const MXFP4 &half, int step, u32 &low, u32 &high) {
    low = half.two(step, false), high = half.two(step, true);
}

// Half tiles of a warp's BANDS bands.
template <class Type, int BANDS> struct Bands {
    Type quants[BANDS];

    DEVICE void load(const u8 *tiles, int half, int lane) {
#pragma unroll
        for (int b = 0; b < BANDS; b++)
            quants[b].load(tiles + b * Type::BYTES, half, lane);
    }

    DEVICE void pairs(int band, int step, u32 &low, u32 &high) const { ::pairs(quants[band], step, low, high); }
};
