// The instructions that CUDA C++ has no word for. Its twin in the tests does the same on the CPU.
#ifndef PARKWAY_PTX_H
#define PARKWAY_PTX_H

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

#define DEVICE __device__ __forceinline__

// Copies 16 bytes into shared memory, or zeros where there is nothing to copy; done after a wait for its group.
DEVICE void copy16(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

// The same, and leaves them in the multiprocessor's own cache: its other warps will ask for them too.
DEVICE void copy16_near(void *to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

// Everything copied since the last group becomes a group.
DEVICE void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// All groups but the PENDING newest have landed, as this thread sees it.
template <int PENDING> DEVICE void wait_for_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#if __CUDA_ARCH__ >= 900
#define HAS_BULK_COPIES

// A barrier in shared memory, passed once for every `count` arrivals; others see it after `show_barriers` and a meeting.
DEVICE void begin_barrier(u64 *barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(barrier)), "r"(count)
                 : "memory");
}

DEVICE void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

DEVICE void arrive(u64 *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((u32)__cvta_generic_to_shared(barrier)) : "memory");
}

// Arrives; and the barrier is not passed before so many bytes more have been copied.
DEVICE void arrive_expecting(u64 *barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Returns when the barrier has been passed an odd (`times` 0) or an even (1) number of times.
DEVICE void wait_for_barrier(u64 *barrier, u32 times) {
    asm volatile("{\n"
                 ".reg .pred passed;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 passed, [%0], %1;\n"
                 "@passed bra done;\n"
                 "bra again;\n"
                 "done:\n"
                 "}" ::"r"((u32)__cvta_generic_to_shared(barrier)), "r"(times)
                 : "memory");
}

// One lane of a warp that is together.
DEVICE bool elected() {
    u32 is;
    asm volatile("{\n"
                 ".reg .pred one;\n"
                 "elect.sync _|one, 0xffffffff;\n"
                 "selp.b32 %0, 1, 0, one;\n"
                 "}"
                 : "=r"(is));
    return is;
}

// Copies a multiple of 16 bytes into shared memory; the barrier is told.
DEVICE void copy_bulk(void *to, const void *from, u32 bytes, u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     (u32)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(bytes), "r"((u32)__cvta_generic_to_shared(barrier))
                 : "memory");
}

// Asks for a multiple of 16 bytes that will be copied later: from then on they are on the chip.
DEVICE void prefetch_bulk(const void *from, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
#endif

// Waits for `count` threads, of those that name this barrier; 0 is the whole block's.
DEVICE void meet_some(int barrier, int count) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(count) : "memory"); }

// Four 8 x 8 matrices of 16-bit values: lanes 8m … 8m + 7 say where the rows of matrix m are, lane 4r + c gets columns
// 2c and 2c + 1 of row r of each.
DEVICE void load_matrices(u32 (&matrices)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"((u32)__cvta_generic_to_shared(row)));
}

// total [16 x 8] += a [16 x 16] b [16 x 8] by one warp.
DEVICE void multiply_16x8(float (&total)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(total[0]), "+f"(total[1]), "+f"(total[2]), "+f"(total[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// (word & mask) | bits; written out, or the compiler makes two instructions of it.
DEVICE u32 masked_or(u32 word, u32 mask, u32 bits) {
    u32 result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}

// The same number, to all lanes of a warp that is together; it stays in a register: what comes from another lane is not
// worked out anew for every use.
DEVICE int kept(int number) {
    asm volatile("shfl.sync.bfly.b32 %0, %0, 0, 0x1f, 0xffffffff;" : "+r"(number));
    return number;
}

// The same place in shared memory; so does its address.
DEVICE u8 *kept(u8 *place) {
    return (u8 *)__cvta_shared_to_generic((u32)kept((int)(u32)__cvta_generic_to_shared(place)));
}

// What the lane has whose number differs in the bits of `apart`.
DEVICE float of_lane_across(float value, int apart) {
    float other;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(other) : "f"(value), "r"(apart));
    return other;
}

// Whatever the register holds.
DEVICE u32 anything() {
    u32 value;
    asm("" : "=r"(value));
    return value;
}

DEVICE float from_half(u32 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)bits));
    return value;
}

// Both rounded to nearest, ties to even; `low` into the low half.
DEVICE u32 to_bf16_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// The low half of a word, or the high one, in both halves: an operand of half instructions that costs none of its own.
DEVICE u32 low_twice(u32 word) {
    u32 pair;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low};}" : "=r"(pair) : "r"(word));
    return pair;
}

DEVICE u32 high_twice(u32 word) {
    u32 pair;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high};}" : "=r"(pair) : "r"(word));
    return pair;
}

// a * b + c of each half, a bf16, rounded once to nearest, ties to even; subnormal ones count, as what comes out too.
DEVICE u32 fma_bf16_pair(u32 a, u32 b, u32 c) {
    u32 pair;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
    return pair;
}

// x / (1 + e^y), by the instructions that Triton makes of it.
DEVICE float divided(float x, float y) {
    float power, quotient;
    asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(__fmul_rn(y, 1.4426950408889634f)));
    asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(x), "f"(__fadd_rn(power, 1.0f)));
    return quotient;
}

// 1 / sqrt(x), as near as the instruction comes.
DEVICE float inverse_root(float x) {
    float root;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
    return root;
}

// Programmatic dependent launch; nothing happens in a kernel that was launched without it.
DEVICE void let_later_kernels_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

DEVICE void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif
