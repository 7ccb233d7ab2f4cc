// Dot products of packed bytes with int8 activations: integers, so exact in any order, in as few instructions as there are.
#pragma once
#include "simd.h"

namespace {

INLINE int32_t quad(const int8_t *q, int j) { int32_t x; memcpy(&x, q + 4 * j, 4); return x; }

#if defined(PK_AVX2)

// Pairs of products that 16 bits hold, if bytes are `most` at most and activations 127.
constexpr int pairs_in_16_bits(int most) { return 32767 / (2 * 127 * most); }

INLINE I add_pairs(I acc, __m256i a, __m256i b) {
    const __m256i one = _mm256_set1_epi16(1);
    return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(a, one)), _mm256_add_epi32(acc.b, _mm256_madd_epi16(b, one))};
}

template <int MOST, int OFFSET, int QUADS> INLINE I small_dots(const B *w, const int8_t *q, int32_t sum) {
    constexpr int RUN = pairs_in_16_bits(MOST) < QUADS ? pairs_in_16_bits(MOST) : QUADS;
    I acc = all_int(-OFFSET * sum);
#pragma GCC unroll 8
    for (int from = 0; from < QUADS; from += RUN) {
        __m256i a = _mm256_setzero_si256(), b = a;
#pragma GCC unroll 8
        for (int j = 0; j < RUN; j++) {
            if (from + j >= QUADS) continue;
            const __m256i x = _mm256_set1_epi32(quad(q, from + j));
            a = _mm256_add_epi16(a, _mm256_maddubs_epi16(w[from + j].a, x));
            b = _mm256_add_epi16(b, _mm256_maddubs_epi16(w[from + j].b, x));
        }
        acc = add_pairs(acc, a, b);
    }
    return acc;
}

// One factor must be without a sign, so it gives that to the other. 128 * 127 twice fits 16 bits.
INLINE __m256i signed_pairs(__m256i w, __m256i x) { return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)); }

template <int QUADS> INLINE I signed_dots(const B *w, const int8_t *q) {
    const __m256i raised = _mm256_set1_epi8(-128);
    I acc = all_int(0);
#pragma GCC unroll 8
    for (int j = 0; j < QUADS; j++) {
        const __m256i x = _mm256_set1_epi32(quad(q, j));
        acc = add_pairs(acc, signed_pairs(_mm256_xor_si256(w[j].a, raised), x), signed_pairs(_mm256_xor_si256(w[j].b, raised), x));
    }
    return acc;
}

#endif

// Of each lane's 4 bytes in each of QUADS vectors, less OFFSET, with activations q [4 * QUADS]. `sum`: that of q; `MOST`: the
// largest byte.
template <int MOST, int OFFSET, int QUADS> INLINE I dots(const B *w, const int8_t *q, int32_t sum) {
#if defined(PK_AVX2)
    if constexpr (MOST <= 127) return small_dots<MOST, OFFSET, QUADS>(w, q, sum);
    static_assert(MOST <= 127 || OFFSET == 128, "larger bytes are raised numbers with a sign");
    return signed_dots<QUADS>(w, q);
#else
    I acc = all_int(-OFFSET * sum);
#pragma GCC unroll 8
    for (int j = 0; j < QUADS; j++) acc = dot(acc, w[j], quad(q, j));
    return acc;
#endif
}

}  // namespace
