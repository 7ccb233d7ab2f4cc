// The same sixteen lanes in plain C++, for machines without AVX2. Included by simd.h inside its namespace.
constexpr int INT8_TILE_ROWS = 4;
constexpr int FLOAT_TILE_ROWS = 4;
constexpr int VALUE_VECTORS = 1;

struct F { float v[16]; };
struct I { int32_t v[16]; };
struct B { uint8_t v[64]; };

#define LANES(type, expression) type r; for (int i = 0; i < 16; i++) r.v[i] = (expression); return r;

INLINE F load(const float *p) { LANES(F, p[i]) }
INLINE void store(float *p, F a) { memcpy(p, a.v, 64); }
INLINE F all(float x) { LANES(F, x) }
INLINE F add(F a, F b) { LANES(F, a.v[i] + b.v[i]) }
INLINE F sub(F a, F b) { LANES(F, a.v[i] - b.v[i]) }
INLINE F mul(F a, F b) { LANES(F, a.v[i] * b.v[i]) }
INLINE F div(F a, F b) { LANES(F, a.v[i] / b.v[i]) }
INLINE F fma(F a, F b, F c) { LANES(F, __builtin_fmaf(a.v[i], b.v[i], c.v[i])) }
INLINE F max(F a, F b) { LANES(F, a.v[i] > b.v[i] ? a.v[i] : b.v[i]) }
INLINE F min(F a, F b) { LANES(F, a.v[i] < b.v[i] ? a.v[i] : b.v[i]) }
INLINE F abs(F a) { LANES(F, __builtin_fabsf(a.v[i])) }
INLINE F nearest(F a) { LANES(F, __builtin_rintf(a.v[i])) }
INLINE bool any_nan(F a) { int found = 0; for (int i = 0; i < 16; i++) found |= a.v[i] != a.v[i]; return found; }
INLINE F first(int n, F a, F b) { LANES(F, i < n ? a.v[i] : b.v[i]) }

INLINE float from_bits(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
INLINE uint32_t to_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }
INLINE float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) return from_bits(sign | ((rest << 13) + (112u << 23)));
    return from_bits(sign | to_bits((float)rest * 0x1p-24f));  // subnormal: exact
}
INLINE uint16_t float_to_half(float x) {  // to nearest, ties to even
    uint32_t bits = to_bits(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) return (uint16_t)(sign | (uint32_t)__builtin_rintf(__builtin_fabsf(x) * 0x1p24f));
    return (uint16_t)(sign | (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13);
}
INLINE F load_half(const uint16_t *p) { LANES(F, half_to_float(p[i])) }
INLINE F load_bf16(const uint16_t *p) { LANES(F, from_bits((uint32_t)p[i] << 16)) }
INLINE void store_half(uint16_t *p, F a) { for (int i = 0; i < 16; i++) p[i] = float_to_half(a.v[i]); }

INLINE I all_int(int32_t x) { LANES(I, x) }
INLINE F to_float(I a) { LANES(F, (float)a.v[i]) }
INLINE I to_int(F a) { LANES(I, (int32_t)__builtin_rintf(a.v[i])) }
INLINE int32_t sum(I a) { int32_t s = 0; for (int i = 0; i < 16; i++) s += a.v[i]; return s; }
INLINE void store_int8(int8_t *p, I a) { for (int i = 0; i < 16; i++) p[i] = (int8_t)a.v[i]; }
INLINE F power_of_two(F n) { LANES(F, from_bits((uint32_t)((int32_t)n.v[i] + 127) << 23)) }
INLINE B load_bytes(const uint8_t *p) { B r; memcpy(r.v, p, 64); return r; }
INLINE B low_nibbles(B a) { B r; for (int i = 0; i < 64; i++) r.v[i] = a.v[i] & 15; return r; }
INLINE B high_nibbles(B a) { B r; for (int i = 0; i < 64; i++) r.v[i] = a.v[i] >> 4; return r; }
INLINE B or_bits(B a, B b) { B r; for (int i = 0; i < 64; i++) r.v[i] = a.v[i] | b.v[i]; return r; }
INLINE B move_bits(B a, int from, int to, int count) {
    B r;
    for (int i = 0; i < 64; i++) r.v[i] = (uint8_t)((a.v[i] >> from & ((1 << count) - 1)) << to);
    return r;
}
INLINE B look_up(const uint8_t *table, B a) { B r; for (int i = 0; i < 64; i++) r.v[i] = table[a.v[i]]; return r; }
INLINE I load_uint8(const uint8_t *p) { LANES(I, p[i]) }
INLINE I load_int8(const uint8_t *p) { LANES(I, (int8_t)p[i]) }
INLINE I low_nibbles(I a) { LANES(I, a.v[i] & 15) }
INLINE I high_nibbles(I a) { LANES(I, a.v[i] >> 4) }
INLINE F load_power(const uint8_t *p) { LANES(F, from_bits(p[i] < 2 ? 0x200000u << p[i] : (uint32_t)(p[i] - 1) << 23)) }
INLINE I byte_of_lane(B a, int t) { LANES(I, a.v[4 * i + t]) }
INLINE I add(I a, I b) { LANES(I, a.v[i] + b.v[i]) }
INLINE I sub(I a, I b) { LANES(I, a.v[i] - b.v[i]) }
INLINE I dot(I acc, B w, int32_t x) {
    int8_t b[4];
    memcpy(b, &x, 4);
    LANES(I, acc.v[i] + w.v[4 * i] * b[0] + w.v[4 * i + 1] * b[1] + w.v[4 * i + 2] * b[2] + w.v[4 * i + 3] * b[3])
}
INLINE void prefetch(const uint8_t *) {}
INLINE void prefetch_far(const uint8_t *) {}
INLINE float sum(F a) {
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) a.v[i] += a.v[i + half];
    return a.v[0];
}
INLINE float largest(F a) {
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
    return a.v[0];
}
#undef LANES
