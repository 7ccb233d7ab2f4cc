// How each type's blocks of one row are packed: bits are put where weights.h and weights_k.h read them, none is lost.
// `raw` is a block of the file; `packed` where its groups of 16 rows begin, one for each 32 columns.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

constexpr int64_t GROUP = 16, COLUMNS = 32;

void put_half(const uint8_t *half, int64_t row, uint8_t *packed) { memcpy(packed + 2 * row, half, 2); }

void put_negated(const uint8_t *half, int64_t row, uint8_t *packed) {
    const uint8_t negated[2] = {half[0], (uint8_t)(half[1] ^ 0x80)};
    put_half(negated, row, packed);
}

// BITS of each of 32 columns, from bit FROM on: a byte has those of columns 4 apart, 64 bytes all 16 rows.
template <int BITS, int FROM = 0> void put_bits(const uint8_t q[32], int64_t row, uint8_t *packed) {
    constexpr int EACH = 8 / BITS;
    constexpr uint32_t KEPT = ((1u << BITS) - 1) * 0x01010101u;
    for (int i = 0; i < BITS; i++) {
        uint32_t four = 0;  // bytes side by side
        for (int j = 0; j < EACH; j++) {
            uint32_t columns;
            memcpy(&columns, q + 4 * (EACH * i + j), 4);
            four |= (columns >> FROM & KEPT) << BITS * j;
        }
        memcpy(packed + 64 * i + 4 * row, &four, 4);
    }
}

void put_fives(const uint8_t q[32], int64_t row, uint8_t *packed) {
    put_bits<4>(q, row, packed);
    put_bits<1, 4>(q, row, packed + 256);
}

// 32 4-bit values: the file keeps column i and i + 16 in one byte.
void take_nibbles(const uint8_t *raw, uint8_t q[32]) {
    for (int i = 0; i < 16; i++) {
        q[i] = raw[i] & 15;
        q[16 + i] = raw[i] >> 4;
    }
}

void take_fives(const uint8_t *bits, const uint8_t *nibbles, uint8_t q[32]) {
    take_nibbles(nibbles, q);
    for (int j = 0; j < 8; j++) {
        uint32_t columns;
        memcpy(&columns, q + 4 * j, 4);
        const uint32_t apart = (bits[j / 2] >> 4 * (j % 2) & 15) * 0x204081u & 0x01010101u;  // 4 bits to one of each byte
        columns |= apart << 4;
        memcpy(q + 4 * j, &columns, 4);
    }
}

void put_nibbles(const uint8_t *raw, int64_t row, uint8_t *packed) {
    uint8_t q[32];
    take_nibbles(raw, q);
    put_bits<4>(q, row, packed);
}

void pack_q4_0(const uint8_t *raw, int64_t row, uint8_t *packed) {
    put_nibbles(raw + 2, row, packed);
    put_half(raw, row, packed + 256);
}

void pack_q4_1(const uint8_t *raw, int64_t row, uint8_t *packed) {
    put_nibbles(raw + 4, row, packed);
    put_half(raw, row, packed + 256);
    put_half(raw + 2, row, packed + 288);
}

void pack_q5_0(const uint8_t *raw, int64_t row, uint8_t *packed) {
    uint8_t q[32];
    take_fives(raw + 2, raw + 6, q);
    put_fives(q, row, packed);
    put_half(raw, row, packed + 320);
}

void pack_q5_1(const uint8_t *raw, int64_t row, uint8_t *packed) {
    uint8_t q[32];
    take_fives(raw + 4, raw + 8, q);
    put_fives(q, row, packed);
    put_half(raw, row, packed + 320);
    put_half(raw + 2, row, packed + 352);
}

void pack_q8_0(const uint8_t *raw, int64_t row, uint8_t *packed) {
    uint8_t q[32];
    for (int i = 0; i < 32; i++) q[i] = raw[2 + i] ^ 0x80;
    put_bits<8>(q, row, packed);
    put_half(raw, row, packed + 512);
}

void pack_mxfp4(const uint8_t *raw, int64_t row, uint8_t *packed) {
    put_nibbles(raw + 1, row, packed);
    packed[256 + row] = raw[0];
}

// Of 256 columns in eight blocks: the 2 bits of 128 columns lie in 32 bytes, those of a block at the same place in each.
void take_pairs(const uint8_t *raw, int b, uint8_t q[32]) {
    for (int i = 0; i < 32; i++) q[i] = raw[b / 4 * 32 + i] >> 2 * (b % 4) & 3;
}

// … the nibbles of 64 columns in 32 bytes, those of the even block in the low halves.
void take_halves(const uint8_t *raw, int b, uint8_t q[32]) {
    for (int i = 0; i < 32; i++) q[i] = raw[b / 2 * 32 + i] >> 4 * (b % 2) & 15;
}

// … one bit of all eight blocks in a byte, worth `worth` in a value.
void add_bits(const uint8_t *raw, int b, int worth, uint8_t q[32]) {
    for (int i = 0; i < 32; i++) q[i] |= (uint8_t)((raw[i] >> b & 1) * worth);
}

// A scale for each 16 columns, of 4 bits, and above it as many of a minimum; then pairs, d, dmin.
void pack_q2_k(const uint8_t *raw, int64_t row, uint8_t *packed) {
    for (int b = 0; b < 8; b++, packed += 224) {
        uint8_t q[32];
        take_pairs(raw + 16, b, q);
        put_bits<2>(q, row, packed);
        put_half(raw + 80, row, packed + 128);
        put_negated(raw + 82, row, packed + 160);
        for (int half = 0; half < 2; half++) packed[192 + 16 * half + row] = raw[2 * b + half];
    }
}

// High bits, pairs, scales whose low nibbles and upper 2 bits lie apart, d.
void pack_q3_k(const uint8_t *raw, int64_t row, uint8_t *packed) {
    const uint8_t *low = raw + 96, *high = raw + 104;
    for (int b = 0; b < 8; b++, packed += 256) {
        uint8_t q[32];
        take_pairs(raw + 32, b, q);
        add_bits(raw, b, 4, q);
        put_bits<2>(q, row, packed);
        put_bits<1, 2>(q, row, packed + 128);
        put_half(raw + 108, row, packed + 192);
        for (int s = 2 * b; s < 2 * b + 2; s++) {
            const int scale = (low[s % 8] >> s / 8 * 4 & 15) | (high[s % 4] >> s / 4 * 2 & 3) << 4;
            packed[224 + 16 * (s % 2) + row] = (uint8_t)(scale - 32);
        }
    }
}

// d, dmin, then 6-bit scales and minima whose upper two bits lie apart for blocks 4 to 7.
void put_scaled(const uint8_t *raw, int b, int64_t row, uint8_t *packed) {
    const uint8_t *scales = raw + 4;
    put_half(raw, row, packed);
    put_negated(raw + 2, row, packed + 32);
    const int scale = b < 4 ? scales[b] & 63 : (scales[b + 4] & 15) | scales[b - 4] >> 6 << 4;
    const int least = b < 4 ? scales[b + 4] & 63 : scales[b + 4] >> 4 | scales[b] >> 6 << 4;
    packed[64 + row] = (uint8_t)scale;
    packed[80 + row] = (uint8_t)least;
}

void pack_q4_k(const uint8_t *raw, int64_t row, uint8_t *packed) {
    for (int b = 0; b < 8; b++, packed += 352) {
        uint8_t q[32];
        take_halves(raw + 16, b, q);
        put_bits<4>(q, row, packed);
        put_scaled(raw, b, row, packed + 256);
    }
}

void pack_q5_k(const uint8_t *raw, int64_t row, uint8_t *packed) {
    for (int b = 0; b < 8; b++, packed += 416) {
        uint8_t q[32];
        take_halves(raw + 48, b, q);
        add_bits(raw + 16, b, 16, q);
        put_fives(q, row, packed);
        put_scaled(raw, b, row, packed + 320);
    }
}

// The low 4 bits of 128 columns in 64 bytes, pairs of high bits, then a signed scale for each 16 columns, then d.
void pack_q6_k(const uint8_t *raw, int64_t row, uint8_t *packed) {
    for (int b = 0; b < 8; b++, packed += 448) {
        const uint8_t *low = raw + b / 4 * 64 + b % 2 * 32;
        uint8_t q[32], high[32];
        for (int i = 0; i < 32; i++) q[i] = low[i] >> (b % 4 < 2 ? 0 : 4);
        take_pairs(raw + 128, b, high);
        put_bits<4>(q, row, packed);
        put_bits<2>(high, row, packed + 256);
        put_half(raw + 208, row, packed + 384);
        for (int half = 0; half < 2; half++) packed[416 + 16 * half + row] = raw[192 + 2 * b + half];
    }
}

// d, the upper 2 bits of eight scales, their nibbles, then 16 bytes for each block.
void pack_iq4_xs(const uint8_t *raw, int64_t row, uint8_t *packed) {
    for (int b = 0; b < 8; b++, packed += 304) {
        const int low = raw[4 + b / 2] >> 4 * (b % 2) & 15, high = raw[2 + b / 4] >> 2 * (b % 4) & 3;
        put_nibbles(raw + 8 + 16 * b, row, packed);
        put_half(raw, row, packed + 256);
        packed[288 + row] = (uint8_t)((low | high << 4) - 32);
    }
}

template <int BYTES> void pack_floats(const uint8_t *raw, int64_t row, uint8_t *packed) {
    for (int64_t c = 0; c < COLUMNS; c++) memcpy(packed + (c * GROUP + row) * BYTES, raw + c * BYTES, BYTES);
}

}  // namespace
