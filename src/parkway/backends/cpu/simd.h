// Sixteen floats at a time, with the same bits on every instruction set: AVX-512 VNNI, AVX2 with FMA, or plain C++.
// Only IEEE operations with one result are used; sums over lanes go in one fixed tree.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(PK_AVX512) || defined(PK_AVX2)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#if defined(PK_AVX512) || defined(PK_AVX2)
#define MEMBER inline __attribute__((always_inline))
#else
#define MEMBER __attribute__((noinline))  // a block is thousands of plain instructions: compiled once, not in every tile
#endif

namespace {

#if defined(PK_AVX512)

// Rows of a linear tile: 16 sums, 8 weight vectors and their scales fit into 32 registers.
constexpr int INT8_TILE_ROWS = 16;
constexpr int FLOAT_TILE_ROWS = 8;
constexpr int VALUE_VECTORS = 4;  // head lanes of an attention tile that are summed at once

struct F { __m512 v; };
struct I { __m512i v; };
struct B { __m512i v; };  // 64 bytes: 16 lanes of 4

INLINE F load(const float *p) { return {_mm512_loadu_ps(p)}; }
INLINE void store(float *p, F a) { _mm512_storeu_ps(p, a.v); }
INLINE F all(float x) { return {_mm512_set1_ps(x)}; }
INLINE F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
INLINE F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
INLINE F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
INLINE F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
INLINE F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
INLINE F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }  // b where either is NaN
INLINE F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
INLINE F abs(F a) { return {_mm512_abs_ps(a.v)}; }
INLINE F nearest(F a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
INLINE bool any_nan(F a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
INLINE F first(int n, F a, F b) { return {_mm512_mask_mov_ps(b.v, (__mmask16)((1u << n) - 1), a.v)}; }
INLINE F load_half(const uint16_t *p) { return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p))}; }
INLINE F load_bf16(const uint16_t *p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16))};
}
INLINE void store_half(uint16_t *p, F a) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT)); }
INLINE float half_to_float(uint16_t h) { return _cvtsh_ss(h); }
INLINE I all_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
INLINE I load_int(const int32_t *p) { return {_mm512_loadu_si512(p)}; }
INLINE F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
INLINE I to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }
INLINE int32_t sum(I a) { return _mm512_reduce_add_epi32(a.v); }
INLINE void store_int8(int8_t *p, I a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(a.v)); }
INLINE F power_of_two(F n) {  // n integral, -126 … 127
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23))};
}
INLINE B load_bytes(const uint8_t *p) { return {_mm512_loadu_si512(p)}; }
INLINE B less(B a, int x) { return {_mm512_sub_epi8(a.v, _mm512_set1_epi8((char)x))}; }
INLINE B low_nibbles(B a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))}; }
INLINE B high_nibbles(B a) { return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))}; }
INLINE B or_bits(B a, B b) { return {_mm512_or_si512(a.v, b.v)}; }
// `count` bits of every byte, from bit `from` on, as its bits from `to` on; the others 0.
INLINE B move_bits(B a, int from, int to, int count) {
    __m512i v = from > to ? _mm512_srli_epi16(a.v, from - to) : _mm512_slli_epi16(a.v, to - from);
    return {_mm512_and_si512(v, _mm512_set1_epi8((char)(((1 << count) - 1) << to)))};
}
INLINE B look_up(const uint8_t *table, B a) {  // table[a] for every byte; a below 16
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), a.v)};
}
INLINE I load_uint8(const uint8_t *p) { return {_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p))}; }
INLINE I load_int8(const uint8_t *p) { return {_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))}; }
INLINE I low_nibbles(I a) { return {_mm512_and_si512(a.v, _mm512_set1_epi32(15))}; }
INLINE I high_nibbles(I a) { return {_mm512_srli_epi32(a.v, 4)}; }  // of lanes below 256
INLINE F load_power(const uint8_t *p) {  // 2^(byte - 128); the lowest two are subnormal
    I a = load_uint8(p);
    __m512i one = _mm512_set1_epi32(1), normal = _mm512_slli_epi32(_mm512_sub_epi32(a.v, one), 23);
    __m512i lowest = _mm512_slli_epi32(_mm512_add_epi32(_mm512_min_epi32(a.v, one), one), 21);
    return {_mm512_castsi512_ps(_mm512_max_epi32(normal, lowest))};
}
INLINE I byte_of_lane(B a, int t) { return {_mm512_and_si512(_mm512_srli_epi32(a.v, 8 * t), _mm512_set1_epi32(255))}; }
INLINE I add(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
INLINE I sub(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
// acc + dot of each lane's 4 unsigned bytes with the 4 signed bytes of x.
INLINE I dot(I acc, B w, int32_t x) { return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(x))}; }
INLINE __m256 upper(F a) { return _mm512_extractf32x8_ps(a.v, 1); }
INLINE __m256 lower(F a) { return _mm512_castps512_ps256(a.v); }
INLINE void prefetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
INLINE void prefetch_far(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }

#elif defined(PK_AVX2)

constexpr int INT8_TILE_ROWS = 4;
constexpr int FLOAT_TILE_ROWS = 4;
constexpr int VALUE_VECTORS = 1;

struct F { __m256 a, b; };
struct I { __m256i a, b; };
struct B { __m256i a, b; };

INLINE F load(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INLINE void store(float *p, F x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
INLINE F all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INLINE F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
INLINE F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
INLINE F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
INLINE F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
INLINE F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
INLINE F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
INLINE F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
INLINE __m256 abs8(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.f), x); }
INLINE F abs(F x) { return {abs8(x.a), abs8(x.b)}; }
INLINE __m256 nearest8(__m256 x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE F nearest(F x) { return {nearest8(x.a), nearest8(x.b)}; }
INLINE bool any_nan(F x) {
    __m256 strange = _mm256_or_ps(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q));
    return _mm256_movemask_ps(strange);
}
INLINE __m256 first8(int n, __m256 x, __m256 y) {
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane)));
}
INLINE F first(int n, F x, F y) { return {first8(n, x.a, y.a), first8(n - 8, x.b, y.b)}; }
INLINE __m256 load_half8(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE F load_half(const uint16_t *p) { return {load_half8(p), load_half8(p + 8)}; }
INLINE __m256 load_bf16_8(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
INLINE F load_bf16(const uint16_t *p) { return {load_bf16_8(p), load_bf16_8(p + 8)}; }
INLINE void store_half(uint16_t *p, F x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
INLINE float half_to_float(uint16_t h) { return _cvtsh_ss(h); }
INLINE I all_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
INLINE F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
INLINE I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
INLINE int32_t sum(I x) {
    __m256i t = _mm256_add_epi32(x.a, x.b);
    __m128i u = _mm_add_epi32(_mm256_castsi256_si128(t), _mm256_extracti128_si256(t, 1));
    u = _mm_add_epi32(u, _mm_shuffle_epi32(u, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(u, _mm_shuffle_epi32(u, 0xb1)));
}
INLINE void store_int8(int8_t *p, I x) {
    int32_t t[16];
    _mm256_storeu_si256((__m256i *)t, x.a);
    _mm256_storeu_si256((__m256i *)(t + 8), x.b);
    for (int i = 0; i < 16; i++) p[i] = (int8_t)t[i];
}
INLINE __m256 power8(__m256 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
INLINE F power_of_two(F n) { return {power8(n.a), power8(n.b)}; }
INLINE B load_bytes(const uint8_t *p) { return {_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 32))}; }
INLINE __m256i low8(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
INLINE B low_nibbles(B x) { return {low8(x.a), low8(x.b)}; }
INLINE B high_nibbles(B x) { return {low8(_mm256_srli_epi16(x.a, 4)), low8(_mm256_srli_epi16(x.b, 4))}; }
INLINE B or_bits(B x, B y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
INLINE __m256i move8(__m256i x, int from, int to, int count) {
    __m256i v = from > to ? _mm256_srli_epi16(x, from - to) : _mm256_slli_epi16(x, to - from);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)(((1 << count) - 1) << to)));
}
INLINE B move_bits(B x, int from, int to, int count) { return {move8(x.a, from, to, count), move8(x.b, from, to, count)}; }
INLINE B look_up(const uint8_t *table, B x) {
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return {_mm256_shuffle_epi8(t, x.a), _mm256_shuffle_epi8(t, x.b)};
}
INLINE __m128i half_of(const uint8_t *p) { return _mm_loadl_epi64((const __m128i *)p); }
INLINE I load_uint8(const uint8_t *p) { return {_mm256_cvtepu8_epi32(half_of(p)), _mm256_cvtepu8_epi32(half_of(p + 8))}; }
INLINE I load_int8(const uint8_t *p) { return {_mm256_cvtepi8_epi32(half_of(p)), _mm256_cvtepi8_epi32(half_of(p + 8))}; }
INLINE I low_nibbles(I x) { return {_mm256_and_si256(x.a, _mm256_set1_epi32(15)), _mm256_and_si256(x.b, _mm256_set1_epi32(15))}; }
INLINE I high_nibbles(I x) { return {_mm256_srli_epi32(x.a, 4), _mm256_srli_epi32(x.b, 4)}; }
INLINE __m256 load_power8(const uint8_t *p) {
    __m256i x = _mm256_cvtepu8_epi32(half_of(p)), one = _mm256_set1_epi32(1);
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(x, one), 23);
    __m256i lowest = _mm256_slli_epi32(_mm256_add_epi32(_mm256_min_epi32(x, one), one), 21);
    return _mm256_castsi256_ps(_mm256_max_epi32(normal, lowest));
}
INLINE F load_power(const uint8_t *p) { return {load_power8(p), load_power8(p + 8)}; }
INLINE I byte_of_lane(B x, int t) {
    __m256i m = _mm256_set1_epi32(255);
    return {_mm256_and_si256(_mm256_srli_epi32(x.a, 8 * t), m), _mm256_and_si256(_mm256_srli_epi32(x.b, 8 * t), m)};
}
INLINE I add(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
INLINE I sub(I x, I y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
INLINE __m256 upper(F x) { return x.b; }
INLINE __m256 lower(F x) { return x.a; }
INLINE void prefetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
INLINE void prefetch_far(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }

#else
#include "simd_portable.h"
#endif

#if defined(PK_AVX512) || defined(PK_AVX2)
INLINE float sum(F x) {  // lanes i and i + 8, then + 4, + 2, + 1
    __m256 t = _mm256_add_ps(lower(x), upper(x));
    __m128 u = _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    u = _mm_add_ps(u, _mm_movehl_ps(u, u));
    return _mm_cvtss_f32(_mm_add_ss(u, _mm_movehdup_ps(u)));
}
INLINE float largest(F x) {
    __m256 t = _mm256_max_ps(lower(x), upper(x));
    __m128 u = _mm_max_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    u = _mm_max_ps(u, _mm_movehl_ps(u, u));
    return _mm_cvtss_f32(_mm_max_ss(u, _mm_movehdup_ps(u)));
}
#endif

// e^x by Cephes' polynomial after reduction by ln 2 in two parts; x is clamped to -87 … 88. Relative error below 2e-7.
INLINE F exp(F x) {
    x = min(max(x, all(-87.f)), all(88.f));
    F n = nearest(mul(x, all(1.44269504f)));
    F r = fma(n, all(-0.693359375f), x);
    r = fma(n, all(2.12194440e-4f), r);
    F p = fma(all(1.9875691500e-4f), r, all(1.3981999507e-3f));
    p = fma(p, r, all(8.3334519073e-3f));
    p = fma(p, r, all(4.1665795894e-2f));
    p = fma(p, r, all(1.6666665459e-1f));
    p = fma(p, r, all(5.0000001201e-1f));
    p = add(fma(p, mul(r, r), r), all(1.f));
    return mul(p, power_of_two(n));
}

INLINE F load_value(const float *p) { return load(p); }
INLINE F load_value(const uint16_t *p) { return load_half(p); }
// Saturating, and NaN becomes finite: a value that a query does not see must not poison its sum through a factor of 0.
INLINE void store_value(float *p, F x) { store(p, min(max(x, all(-3.40282347e38f)), all(3.40282347e38f))); }
INLINE void store_value(uint16_t *p, F x) { store_half(p, min(max(x, all(-65504.f)), all(65504.f))); }

}  // namespace
