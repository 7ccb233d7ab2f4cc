// Packed quantised weights: how a lane gets its values of a half tile. quantised_pack.py writes them.
//
// A tile is 8 rows of a matrix by 256 columns, one run of BYTES bytes: 16 steps of 16 columns in two halves. Of every
// step lane 4r + c has columns 2c, 2c + 1, 2c + 8, 2c + 9 of row r, which is what the matrix unit wants of it. Fields of
// 6 bits lie where they are the fraction of a float without being moved: a mask and an exponent make one. Fields of 4
// bits, masked, are the fractions of two subnormal halves.
//
// Every weight but a Q4_K's is the float32 that the file's format defines (but for the sign of a Q4_0's zero), rounded
// once to bf16. A scale times a quant is exact in float32 for every type here, so one fused multiply-add rounds as a
// product and a sum do.
//
// A Q4_K's weight, by its format d * q - m, is (q - 8) * bf16(d) + bf16(8 * d - m), rounded once to bf16. d and m, a
// block's half times an integer of 6 bits, are exact in float32; 8 * d - m is a float32 before it is a bf16. That takes
// two instructions for two weights, where float32 takes five, and is off by at most
// 2^-8 * (|q - 8| * |d| + |8 * d - m| + |weight|).
#pragma once

#include "ptx.h"

constexpr int BAND = 8, TILE_COLUMNS = 256;

// A field of `mask` << `at` bits as a float of its own: 2^(23 - at) + field, less 2^(23 - at) and `origin`.
DEVICE float field(u32 word, u32 mask, int at, float origin) {
    float with_one = __uint_as_float(masked_or(word, mask << at, (u32)(150 - at) << 23));
    return __fsub_rn(with_one, (float)(1 << (23 - at)) + origin);
}

DEVICE float signed_byte(u32 word, int which) { return (float)(signed char)(word >> 8 * which); }
DEVICE float half_of(u32 word, int which) { return from_half(word >> 16 * which & 0xffffu); }

constexpr float LEAST_HALF = 1.0f / (1 << 24);

// A byte times LEAST_HALF: masked, bytes are the fractions of two subnormal halves.
DEVICE float small_byte(u32 word, int which) {
    return half_of(masked_or(word >> which % 2 * 8, 0x00ff00ffu, 0), which / 2);
}

// 4 bits: two words of a lane for four steps. Of a word each half has at bits 0, 4, 8, 12 one value of a pair.
struct Nibbles {
    u32 words[4];

    DEVICE void load(const u8 *tile, int half, int lane) {
        uint4 four = *(const uint4 *)(tile + half * 512 + lane * 16);
        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    }

    // Values 0 and 1 of 4 of a step, or 2 and 3 times 16, each as the lowest bits of a half.
    DEVICE u32 two(int step, bool high) const {
        return masked_or(words[step / 2] >> step % 2 * 8, high ? 0x00f000f0u : 0x000f000fu, 0);
    }

    // scale * (value i of 4 of a step) + origin; `unit` is the scale / LEAST_HALF.
    DEVICE float weight(int step, int i, float unit, float origin) const {
        return __fmaf_rn(i < 2 ? unit : __fmul_rn(unit, 1.0f / 16), half_of(two(step, i >= 2), i % 2), origin);
    }
};

struct Q4_0 {
    static constexpr int BYTES = 1152;
    Nibbles nibbles;
    uint2 scales;

    DEVICE void load(const u8 *tile, int half, int lane) {
        nibbles.load(tile, half, lane);
        scales = *(const uint2 *)(tile + 1024 + lane / 4 * 16 + half * 8);
    }

    DEVICE float weight(int step, int i) const {
        float scale = half_of(step < 4 ? scales.x : scales.y, step / 2 % 2);
        return nibbles.weight(step, i, __fmul_rn(scale, 1 / LEAST_HALF), __fmul_rn(scale, -8));
    }
};

struct Q4_1 {
    static constexpr int BYTES = 1280;
    Nibbles nibbles;
    u32 scales[4];

    DEVICE void load(const u8 *tile, int half, int lane) {
        nibbles.load(tile, half, lane);
        uint4 four = *(const uint4 *)(tile + 1024 + lane / 4 * 32 + half * 16);
        scales[0] = four.x, scales[1] = four.y, scales[2] = four.z, scales[3] = four.w;
    }

    DEVICE float weight(int step, int i) const {
        u32 pair = scales[step / 2];
        return nibbles.weight(step, i, __fmul_rn(half_of(pair, 0), 1 / LEAST_HALF), half_of(pair, 1));
    }
};

// What makes weights of a Q4_K's quants of 32 columns: 2^8 * d and 8 * d - m, each a bf16 twice. No half is so large or
// so small that 2^8 * d leaves the range of a bf16.
struct Line {
    u32 unit, origin;

    // Two masked quants are the fractions of subnormal bf16, or reach into the exponents of the least normal ones:
    // either way they count 2^-133. They become (quant - 8) * 2^-8 exactly.
    DEVICE u32 weights(u32 two, u32 by) const {
        return fma_bf16_pair(fma_bf16_pair(two, by, 0xbd00bd00u), unit, origin);
    }

    DEVICE void pairs(const Nibbles &nibbles, int step, u32 &low, u32 &high) const {
        low = weights(nibbles.two(step, false), 0x7e007e00u);  // 2^125
        high = weights(nibbles.two(step, true), 0x7c007c00u);  // 2^121
    }
};

// 2^8 * d = `scale` * `small_scale`, -m = `least` * `small_least`.
DEVICE Line line_of(float scale, float small_scale, float least, float small_least) {
    float unit = __fmul_rn(scale, small_scale), origin = __fmaf_rn(unit, 1.0f / 32, __fmul_rn(least, small_least));
    return {to_bf16_pair(unit, unit), to_bf16_pair(origin, origin)};
}

struct Q4_K {
    static constexpr int BYTES = 1184;
    static constexpr float SCALE = 256 / LEAST_HALF, LEAST = -1 / LEAST_HALF;  // times the block's halves
    Nibbles nibbles;
    uint2 scales;
    float scale, least;

    DEVICE void load(const u8 *tile, int half, int lane) {
        nibbles.load(tile, half, lane);
        scales = *(const uint2 *)(tile + 1024 + lane / 4 * 16 + half * 8);
        u32 pair = *(const u32 *)(tile + 1152 + lane / 4 * 4);
        scale = __fmul_rn(half_of(pair, 0), SCALE), least = __fmul_rn(half_of(pair, 1), LEAST);
    }

    DEVICE Line line(int step) const {
        return line_of(scale, small_byte(scales.x, step / 2), least, small_byte(scales.y, step / 2));
    }
};

// 6 bits: three words for four steps. Word w has its values 5w … 5w + 4 at bits 5 + 2w + 6i, round the corner, and at
// 3 + 2w two bits of value 15.
struct Q6_K {
    static constexpr int BYTES = 1680;
    u32 words[6];
    uint2 scales;
    float scale;

    DEVICE void load(const u8 *tile, int half, int lane) {
        uint4 four = *(const uint4 *)(tile + half * 768 + lane * 16);
        uint2 two = *(const uint2 *)(tile + half * 768 + 512 + lane * 8);
        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w, words[4] = two.x, words[5] = two.y;
        scales = *(const uint2 *)(tile + 1536 + lane / 4 * 16 + half * 8);
        scale = from_half(*(const u16 *)(tile + 1664 + lane / 4 * 2));
    }

    DEVICE float value(int step, int i) const {
        const u32 *unit = words + step / 4 * 3;
        int v = step % 4 * 4 + i, w = v / 5, turn = 12 + w % 2 * 2 - w / 2 * 2;
        if (v == 15)
            return field(masked_or(unit[0], 3u << 3, masked_or(unit[1], 3u << 5, unit[2] & 3u << 7)), 63, 3, 32);
        int at = (5 + 2 * w + 6 * (v % 5)) % 32;
        return at <= 17 ? field(unit[w], 63, at, 32) : field(__funnelshift_r(unit[w], unit[w], turn), 63, at - turn, 32);
    }

    DEVICE float weight(int step, int i) const {
        float of_step = __fmul_rn(scale, signed_byte(step < 4 ? scales.x : scales.y, step % 4));
        return __fmul_rn(of_step, value(step, i));
    }
};

struct Q8_0 {
    static constexpr int BYTES = 2176;
    u32 words[8];
    uint2 scales;

    DEVICE void load(const u8 *tile, int half, int lane) {
        for (int part = 0; part < 2; part++) {
            uint4 four = *(const uint4 *)(tile + half * 1024 + part * 512 + lane * 16);
            words[part * 4] = four.x, words[part * 4 + 1] = four.y;
            words[part * 4 + 2] = four.z, words[part * 4 + 3] = four.w;
        }
        scales = *(const uint2 *)(tile + 2048 + lane / 4 * 16 + half * 8);
    }

    // Bytes are 128 more than the quants.
    DEVICE float weight(int step, int i) const {
        float scale = half_of(step < 4 ? scales.x : scales.y, step / 2 % 2);
        float quant = __fsub_rn(__uint_as_float(__byte_perm(words[step], 0x4b000000u, 0x7440u | i)), 8388736.0f);
        return __fmul_rn(scale, quant);
    }
};

// A lane's four values of a step: columns 2c, 2c + 1 and 2c + 8, 2c + 9.
template <class Type> DEVICE void pairs(const Type &half, int step, u32 &low, u32 &high) {
    low = to_bf16_pair(half.weight(step, 0), half.weight(step, 1));
    high = to_bf16_pair(half.weight(step, 2), half.weight(step, 3));
}

DEVICE void pairs(const Q4_K &half, int step, u32 &low, u32 &high) {
    half.line(step).pairs(half.nibbles, step, low, high);
}

// Half tiles of a warp's BANDS bands. Here every lane works out its scales for itself.
template <class Type, int BANDS> struct Bands {
    static constexpr int SCRATCH = 0;  // bytes of a warp

    // What a lane knows of them as long as it lives.
    struct Places {
        DEVICE explicit Places(u8 *) {}
        DEVICE void prepare(const u8 *) const {}
    };

    Type quants[BANDS];

    DEVICE void load(const Places &, const u8 *tiles, int half) {
#pragma unroll
        for (int b = 0; b < BANDS; b++)
            quants[b].load(tiles + b * Type::BYTES, half, threadIdx.x % 32);
    }

    DEVICE void pairs(int band, int step, u32 &low, u32 &high) const { ::pairs(quants[band], step, low, high); }
};

// Here the four lanes of a row share that work: the lines of two groups of 32 columns lie side by side in `scratch`,
// those of 8 * BANDS rows one behind the other, then the next two groups'.
template <int BANDS> struct Bands<Q4_K, BANDS> {
    static constexpr int ROWS = BANDS * BAND, SCRATCH = ROWS * 64;

    // A lane works out one row's scales, of its eight groups 2 * BANDS.
    struct Places {
        int bytes, pair, quants, odd;
        u8 *to, *from;

        DEVICE explicit Places(u8 *scratch) {
            int lane = threadIdx.x % 32, row = lane % ROWS, two = lane / ROWS * BANDS;
            int tile = row / BAND * Q4_K::BYTES;
            bytes = kept(tile + 1024 + row % BAND * 16 + two / 2 * 8);
            pair = kept(tile + 1152 + row % BAND * 4);
            quants = kept(lane * 16);
            odd = kept(0x4140 + two % 2 * 0x0202);
            to = kept(scratch + (two * ROWS + row) * 16);
            from = kept(scratch + lane / 4 * 16);
        }

        // To be called between meetings of the warp.
        DEVICE void prepare(const u8 *tiles) const {
            u32 both = *(const u32 *)(tiles + pair);
            float scale = __fmul_rn(half_of(both, 0), Q4_K::SCALE), least = __fmul_rn(half_of(both, 1), Q4_K::LEAST);
            uint2 eight;
#pragma unroll
            for (int i = 0; i < BANDS; i++) {
                if (i % 2 == 0)
                    eight = *(const uint2 *)(tiles + bytes + i / 2 * 8);
                u32 which = BANDS == 1 ? odd : 0x4140 + i % 2 * 0x0202;
                u32 small = __byte_perm(eight.x, 0, which), leasts = __byte_perm(eight.y, 0, which);
                Line first = line_of(scale, half_of(small, 0), least, half_of(leasts, 0));
                Line second = line_of(scale, half_of(small, 1), least, half_of(leasts, 1));
                *(uint4 *)(to + i * (ROWS * 16)) = make_uint4(first.unit, first.origin, second.unit, second.origin);
            }
        }
    };

    Nibbles nibbles[BANDS];
    Line lines[BANDS][4];

    DEVICE void load(const Places &at, const u8 *tiles, int half) {
#pragma unroll
        for (int b = 0; b < BANDS; b++) {
            nibbles[b].load(tiles + at.quants + b * Q4_K::BYTES, half, 0);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint4 two = *(const uint4 *)(at.from + ((half * 2 + i) * ROWS + b * BAND) * 16);
                lines[b][i * 2] = {two.x, two.y}, lines[b][i * 2 + 1] = {two.z, two.w};
            }
        }
    }

    DEVICE void pairs(int band, int step, u32 &low, u32 &high) const {
        lines[band][step / 2].pairs(nibbles[band], step, low, high);
    }
};
