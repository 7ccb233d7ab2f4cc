// Codes of packed weights: how a lane gets the small integers of a half tile as numbers. quantised_pack.py writes them.
//
// A tile is 8 rows of a matrix by 256 columns, one run of bytes: 16 steps of 16 columns in two halves. Of every step
// lane 4r + c has columns 2c, 2c + 1, 2c + 8, 2c + 9 of row r, which is what the matrix unit wants of it. A tile begins
// with its codes; scales follow. Fields of 6 bits lie where they are the fraction of a float without being moved: a mask
// and an exponent make one. Fields of 4 bits, masked, are the fractions of two subnormal halves.
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

// A byte as a number less 128.
DEVICE float centred_byte(u32 word, int which) {
    return __fsub_rn(__uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440u | which)), 8388736.0f);
}

constexpr float LEAST_HALF = 1.0f / (1 << 24);

// A byte times LEAST_HALF: masked, bytes are the fractions of two subnormal halves.
DEVICE float small_byte(u32 word, int which) {
    return half_of(masked_or(word >> which % 2 * 8, 0x00ff00ffu, 0), which / 2);
}

DEVICE void load_words(u32 (&words)[2], const u8 *from) {
    uint2 two = *(const uint2 *)from;
    words[0] = two.x, words[1] = two.y;
}

DEVICE void load_words(u32 (&words)[4], const u8 *from) {
    uint4 four = *(const uint4 *)from;
    words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
}

// 4 bits: two words of a lane for four steps. Of a word each half has at bits 0, 4, 8, 12 one value of a pair.
struct Nibbles {
    static constexpr int BYTES = 1024;
    u32 words[4];

    DEVICE void load(const u8 *tile, int half, int lane) { load_words(words, tile + half * 512 + lane * 16); }

    // Values 0 and 1 of 4 of a step, or 2 and 3 times 16, each as the lowest bits of a half.
    DEVICE u32 two(int step, bool high) const {
        return masked_or(words[step / 2] >> step % 2 * 8, high ? 0x00f000f0u : 0x000f000fu, 0);
    }

    // scale * (value i of 4 of a step) + origin.
    DEVICE float weight(int step, int i, float scale, float origin) const {
        float unit = __fmul_rn(scale, 1 / LEAST_HALF);
        return __fmaf_rn(i < 2 ? unit : __fmul_rn(unit, 1.0f / 16), half_of(two(step, i >= 2), i % 2), origin);
    }
};

// 6 bits: three words for four steps. Word w has its values 5w … 5w + 4 at bits 5 + 2w + 6i, round the corner, and at
// 3 + 2w two bits of value 15. The numbers are ORIGIN less.
template <int ORIGIN> struct SixBits {
    static constexpr int BYTES = 1536;
    u32 first[4], last[2];

    DEVICE void load(const u8 *tile, int half, int lane) {
        load_words(first, tile + half * 768 + lane * 16);
        load_words(last, tile + half * 768 + 512 + lane * 8);
    }

    DEVICE u32 word(int i) const { return i < 4 ? first[i] : last[i - 4]; }

    DEVICE float value(int step, int i) const {
        int unit = step / 4 * 3, v = step % 4 * 4 + i, w = v / 5, turn = 12 + w % 2 * 2 - w / 2 * 2;
        if (v == 15) {
            u32 upper = masked_or(word(unit + 1), 3u << 5, word(unit + 2) & 3u << 7);
            return field(masked_or(word(unit), 3u << 3, upper), 63, 3, ORIGIN);
        }
        int at = (5 + 2 * w + 6 * (v % 5)) % 32;
        u32 own = word(unit + w);
        return at <= 17 ? field(own, 63, at, ORIGIN) : field(__funnelshift_r(own, own, turn), 63, at - turn, ORIGIN);
    }

    DEVICE float weight(int step, int i, float scale, float origin) const {
        return __fmaf_rn(scale, value(step, i), origin);
    }
};

// 8 bits: a word a step, its bytes 128 more than the numbers.
struct Bytes {
    static constexpr int BYTES = 2048;
    u32 words[2][4];

    DEVICE void load(const u8 *tile, int half, int lane) {
        load_words(words[0], tile + half * 1024 + lane * 16);
        load_words(words[1], tile + half * 1024 + 512 + lane * 16);
    }

    DEVICE float value(int step, int i) const { return centred_byte(words[step / 4][step % 4], i); }
};

// 4 bits that name one of the sixteen numbers of IQ4_NL: a word two steps, their values from the lowest bits on.
struct Named {
    static constexpr int BYTES = 1024;
    u32 words[4];

    DEVICE void load(const u8 *tile, int half, int lane) { load_words(words, tile + half * 512 + lane * 16); }

    // A step's numbers, 128 more each: looked up among the lower eight and among the upper, then one of both is taken.
    DEVICE u32 bytes(int step) const {
        u32 names = masked_or(words[step / 2], 0x77777777u, 0) >> step % 2 * 16;
        u32 upper = masked_or(words[step / 2] >> 1, 0x44444444u, 0x32103210u) >> step % 2 * 16;
        u32 low = __byte_perm(0x3f2d1801u, 0x766a5d4fu, names), high = __byte_perm(0xa6998d81u, 0xf1d9c5b5u, names);
        return __byte_perm(low, high, upper);
    }

    DEVICE float value(int step, int i) const { return centred_byte(bytes(step), i); }
};

// Numbers of 4 bits with an exponent of two of them, E2M1: of a word each half has the magnitudes of four pairs' values
// at bits 0, 3, 6, 9 and their signs at 14, 12, 15, 13. Where they belong in a bf16 they count 2^-127 times twice the
// number: 0, 1, 2, 3, 4, 6, 8, 12.
struct Fours {
    static constexpr int BYTES = 1024;
    u32 words[4];

    DEVICE void load(const u8 *tile, int half, int lane) { load_words(words, tile + half * 512 + lane * 16); }

    // Values 0 and 1 of 4 of a step, or 2 and 3, each a bf16, times 2^127. No zero has a sign.
    DEVICE u32 two(int step, bool high) const {
        u32 word = words[step / 2], moved;
        if (step % 2)
            moved = high ? masked_or(word >> 3, 0x01c001c0u, masked_or(word << 2, 0x80008000u, 0))
                         : masked_or(word, 0x81c081c0u, 0);
        else
            moved = high ? masked_or(word << 3, 0x81c081c0u, 0)
                         : masked_or(word << 6, 0x01c001c0u, masked_or(word << 1, 0x80008000u, 0));
        return fma_bf16_pair(moved, 0x7f007f00u, 0);
    }
};
