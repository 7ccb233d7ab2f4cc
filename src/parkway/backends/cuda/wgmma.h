// Hopper's matrix unit, fed by four warps at once while they go on. Its twin in the tests does the same on the CPU.
#ifndef PARKWAY_WGMMA_H
#define PARKWAY_WGMMA_H

#include "ptx.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WGMMA

// What was written to shared memory before is seen by the matrix unit after the next barrier.
DEVICE void show_to_matrix_unit() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Before a batch of multiplications: registers that were written are seen.
DEVICE void open_batch() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

DEVICE void close_batch() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// All batches but the PENDING newest are done: their operands may be written, their totals read.
template <int PENDING> DEVICE void wait_for_batches() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// How the matrix unit finds b [16 x columns] in shared memory: 8 x 8 matrices of 128 bytes, side by side those of the
// first 8 k, and `half_bytes` on those of the other 8. Sixteen bytes on is one more.
DEVICE u64 matrix_at(const void *first, int half_bytes) {
    u64 at = (u32)__cvta_generic_to_shared(first);
    return (at >> 4 & 0x3fff) | (u64)(half_bytes >> 4) << 16 | (u64)(128 >> 4) << 32;
}

#define WG_TOTAL(i) "+f"(total[i][0]), "+f"(total[i][1]), "+f"(total[i][2]), "+f"(total[i][3])
#define WG_OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)

// total [64 x 8·N] += a [64 x 16] b [16 x 8·N] by four warps, each with 16 rows, laid as `multiply_16x8` has them.
DEVICE void multiply_64(float (&total)[1][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1, 0;"
                 : WG_TOTAL(0)
                 : WG_OPERANDS);
}

DEVICE void multiply_64(float (&total)[2][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
                 "{%8, %9, %10, %11}, %12, 1, 1, 1, 0;"
                 : WG_TOTAL(0), WG_TOTAL(1)
                 : WG_OPERANDS);
}

DEVICE void multiply_64(float (&total)[4][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
                 "%11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, 1, 1, 1, 0;"
                 : WG_TOTAL(0), WG_TOTAL(1), WG_TOTAL(2), WG_TOTAL(3)
                 : WG_OPERANDS);
}

DEVICE void multiply_64(float (&total)[8][4], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
                 "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
                 "%31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
                 : WG_TOTAL(0), WG_TOTAL(1), WG_TOTAL(2), WG_TOTAL(3), WG_TOTAL(4), WG_TOTAL(5), WG_TOTAL(6), WG_TOTAL(7)
                 : WG_OPERANDS);
}

#endif

#endif
