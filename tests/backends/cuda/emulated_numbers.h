// Numbers of 16 bits, the twins of those in ptx.h; part of emulated.h.
#pragma once

#include <algorithm>

inline float from_half(u32 bits) { u16 low = (u16)bits; _Float16 half; memcpy(&half, &low, 2); return (float)half; }
inline float from_bf16(u32 bits) { return __uint_as_float(bits << 16); }
inline u32 to_bf16(float value) {
    u32 bits;
    memcpy(&bits, &value, 4);
    return value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff;
}
inline u32 to_bf16_pair(float low, float high) { return to_bf16(high) << 16 | to_bf16(low); }

// A sum whose last bit is odd unless it is exact: rounded once more, it is as if it had been rounded once.
inline double sum_to_odd(double a, double b) {
    double sum = a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);
    u64 bits;
    memcpy(&bits, &sum, 8);
    if (!std::isfinite(sum) || lost == 0 || bits & 1)
        return sum;
    return std::nextafter(sum, lost > 0 ? INFINITY : -INFINITY);
}

// Nearest even, subnormal numbers too.
inline u32 to_bf16_once(double value) {
    if (!std::isfinite(value))
        return to_bf16((float)value);
    double last_bit = std::ldexp(1.0, std::max(std::ilogb(value), -126) - 7);
    return to_bf16((float)(std::nearbyint(value / last_bit) * last_bit));
}

inline u32 low_twice(u32 word) { return (word & 0xffff) * 0x10001; }
inline u32 high_twice(u32 word) { return (word >> 16) * 0x10001; }

inline u32 fma_bf16_pair(u32 a, u32 b, u32 c) {
    u32 pair = 0;
    for (int at = 0; at < 32; at += 16) {
        double product = (double)from_bf16(a >> at & 0xffff) * from_bf16(b >> at & 0xffff);
        pair |= to_bf16_once(sum_to_odd(product, from_bf16(c >> at & 0xffff))) << at;
    }
    return pair;
}
