// CUDA's threads on the CPU, one after the other, and the twins of ptx.h and wgmma.h for them.
//
// A thread is a fiber that runs until it waits for others, a warp runs as far as it comes alone. Shared memory begins as NaN. What is asynchronous happens
// either as soon as it is asked for or as late as it may (`late`): a kernel that waits for too little differs in one.
#define PARKWAY_PTX_H
#define PARKWAY_WGMMA_H
#define HAS_WGMMA
#define HAS_BULK_COPIES

#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

#define DEVICE inline
#define __global__
#define __shared__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
struct float4 { float x, y, z, w; };
struct Index { u32 x, y, z; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

alignas(128) u8 room[227 * 1024];
static Index threadIdx, blockIdx, blockDim;
static bool late;

struct Copy { u8 *to; const void *from; bool there; };
struct Lane { float *total; const u32 *a; u64 b; int columns; };

struct Thread {
    ucontext_t state;
    std::vector<char> stack = std::vector<char>(1 << 16);
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
    std::vector<Lane> open_batch;
    std::deque<std::vector<Lane>> batches;
    const void *shown = nullptr;  // to the others of a meeting
    bool ended = false;
};

struct Meeting { u32 arrived = 0, times = 0; const char *why = nullptr; };

static std::vector<Thread> threads;
static std::deque<Meeting> of_warp, of_four;
static Meeting of_block, of_some[16];
static ucontext_t scheduler;
static bool moved;
static const char *broken;

inline Thread &me() { return threads[threadIdx.x]; }

// Returns when `size` threads have come; the last one to come acts first.
template <class Act> void meet(Meeting &m, u32 size, const char *why, Act act) {
    if (m.arrived && strcmp(m.why, why))
        broken = "threads of a warp wait for different things";
    m.why = why;
    u32 times = m.times;
    if (++m.arrived == size)
        act(), m.arrived = 0, m.times++, moved = true;
    while (m.times == times) {
        u32 self = threadIdx.x;
        swapcontext(&threads[self].state, &scheduler);
    }
}

template <class Act> void meet_warp(const char *why, Act act) { meet(of_warp[threadIdx.x / 32], 32, why, act); }
inline void __syncwarp() { meet_warp("syncwarp", [] {}); }
inline void __syncthreads() { meet(of_block, blockDim.x, "syncthreads", [] {}); }

inline void meet_some(int barrier, int count) {
    if (barrier < 1 || barrier > 15)
        broken = "there is no such barrier";
    meet(of_some[barrier & 15], count, "barrier", [] {});
}

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __uint_as_float(u32 bits) { float value; memcpy(&value, &bits, 4); return value; }
inline u32 __funnelshift_r(u32 low, u32 high, u32 by) { return (u32)(((u64)high << 32 | low) >> by); }
inline u32 __byte_perm(u32 x, u32 y, u32 which) {
    u64 both = (u64)y << 32 | x, made = 0;
    for (int i = 0; i < 4; i++) {
        u64 byte = both >> (which >> 4 * i & 7) * 8 & 255;
        made |= (which >> 4 * i & 8 ? (byte >> 7) * 255 : byte) << 8 * i;
    }
    return (u32)made;
}

#include "emulated_numbers.h"

inline u32 masked_or(u32 word, u32 mask, u32 bits) { return (word & mask) | bits; }
inline float divided(float x, float y) { return x / (1 + std::exp(y)); }
inline float inverse_root(float x) { return 1 / std::sqrt(x); }
inline float of_lane_across(float value, int apart) {
    me().shown = &value;
    meet_warp("shuffle", [] {});
    float other = *(const float *)threads[threadIdx.x ^ apart].shown;
    meet_warp("shuffle ends", [] {});
    return other;
}
inline u32 anything() { return 0x7fc07fc0; }
inline u8 *kept(u8 *place) { return place; }
inline int kept(int number) { return number; }
inline void wait_for_earlier_kernels() {}
inline void let_later_kernels_start() {}

inline void run(const Copy &copy) { copy.there ? memcpy(copy.to, copy.from, 16) : memset(copy.to, 0, 16); }
inline void copy16(void *to, const void *from, bool there) {
    Copy copy{(u8 *)to, from, there};
    late ? me().open.push_back(copy) : run(copy);
}
inline void copy16_near(void *to, const void *from, bool there) { copy16(to, from, there); }
inline void close_group() { me().groups.push_back(std::move(me().open)), me().open.clear(); }
template <int PENDING> void wait_for_groups() {
    for (auto &groups = me().groups; groups.size() > PENDING; groups.pop_front())
        for (const Copy &copy : groups.front())
            run(copy);
}

inline bool elected() {
    meet_warp("elect", [] {});
    return threadIdx.x % 32 == 0;
}

#include "emulated_barriers.h"

inline void load_matrices(u32 (&matrices)[4], const void *row) {
    me().shown = row;
    meet_warp("ldmatrix", [] {});
    int lane = threadIdx.x % 32;
    for (int m = 0; m < 4; m++)
        memcpy(&matrices[m], (const u8 *)threads[threadIdx.x - lane + 8 * m + lane / 4].shown + lane % 4 * 4, 4);
    meet_warp("ldmatrix ends", [] {});
}

// One warp's 16 x 8 totals: products are added one by one in rising order. at(k, n): an element of b.
template <class At> void add_products(Lane *lanes, int j, At at) {
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float &total = lanes[m % 8 * 4 + n / 2].total[4 * j + m / 8 * 2 + n % 2];
            for (int k = 0; k < 16; k++) {
                u32 pair = lanes[m % 8 * 4 + k % 8 / 2].a[m / 8 + k / 8 * 2];
                total += from_bf16(pair >> k % 2 * 16 & 0xffff) * from_bf16(at(k, n));
            }
        }
}

inline void multiply_16x8(float (&total)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    Lane lane{total, a, (u64)b1 << 32 | b0, 8};
    me().shown = &lane;
    meet_warp("mma", [] {
        Lane lanes[32];
        for (int i = 0; i < 32; i++)
            lanes[i] = *(const Lane *)threads[threadIdx.x / 32 * 32 + i].shown;
        add_products(lanes, 0, [&](int k, int n) {
            return (u32)(lanes[n * 4 + k % 8 / 2].b >> k / 8 * 32 + k % 2 * 16) & 0xffff;
        });
    });
}

template <class Act> void meet_four(const char *why, Act act) { meet(of_four[threadIdx.x / 128], 128, why, act); }

inline void show_to_matrix_unit() {}
inline void open_batch() { meet_four("fence", [] {}); }

// One instruction, by the four warps from thread `first` on; of(thread): what that thread gave.
template <class Of> void run_64(u32 first, Of of) {
    for (u32 warp = first; warp < first + 128; warp += 32) {
        Lane lanes[32];
        for (u32 lane = 0; lane < 32; lane++)
            lanes[lane] = of(threads[warp + lane]);
        const u8 *at = room + (lanes[0].b & 0x3fff) * 16;
        u64 by_k = (lanes[0].b >> 16 & 0x3fff) * 16, by_n = (lanes[0].b >> 32 & 0x3fff) * 16;
        for (int j = 0; j < lanes[0].columns / 8; j++)
            add_products(lanes, j, [&](int k, int n) {
                u16 bits;
                memcpy(&bits, at + k / 8 * by_k + j * by_n + n * 16 + k % 8 * 2, 2);
                return (u32)bits;
            });
    }
}

template <int N> void multiply_64(float (&total)[N][4], const u32 (&a)[4], u64 b) {
    me().open_batch.push_back({total[0], a, b, 8 * N});
    meet_four("wgmma", [] {
        if (!late)
            run_64(threadIdx.x / 128 * 128, [](Thread &thread) { return thread.open_batch.back(); });
    });
}

inline void close_batch() { me().batches.push_back(std::move(me().open_batch)), me().open_batch.clear(); }

template <int PENDING> void wait_for_batches() {
    meet_four("wgmma wait", [] {
        u32 first = threadIdx.x / 128 * 128;
        while (threads[first].batches.size() > PENDING) {
            for (size_t i = 0; late && i < threads[first].batches.front().size(); i++)
                run_64(first, [i](Thread &thread) { return thread.batches.front()[i]; });
            for (u32 thread = first; thread < first + 128; thread++)
                threads[thread].batches.pop_front();
        }
    });
}

inline u64 matrix_at(const void *first, int half_bytes) {
    return (u64)((const u8 *)first - room) >> 4 | (u64)(half_bytes >> 4) << 16 | (u64)(128 >> 4) << 32;
}

static void (*body)();
static void trampoline() {
    body();
    threads[threadIdx.x].ended = moved = true;
    swapcontext(&threads[threadIdx.x].state, &scheduler);
}

// A block: every thread in turn, until all have ended. Names what is wrong if they wait for each other for ever.
static void run_block(u32 count) {
    threads = std::vector<Thread>(count);
    of_warp.assign(count / 32, {}), of_four.assign((count + 127) / 128, {}), of_block = {}, barriers.clear();
    for (Meeting &meeting : of_some)
        meeting = {};
    memset(room, 0xff, sizeof room);
    for (Thread &thread : threads) {
        getcontext(&thread.state);
        thread.state.uc_stack.ss_sp = thread.stack.data();
        thread.state.uc_stack.ss_size = thread.stack.size();
        makecontext(&thread.state, trampoline, 0);
    }
    bool any = true;
    while (any && !broken) {
        any = false;
        for (u32 warp = 0; warp < count; warp += 32)  // as far as it comes without the others
            do {
                moved = false;
                for (u32 i = warp; i < warp + 32; i++)
                    if (!threads[i].ended)
                        threadIdx = {i, 0, 0}, swapcontext(&scheduler, &threads[i].state);
                any |= moved;
            } while (moved && !broken);
    }
    for (Thread &thread : threads)
        if (!thread.ended && !broken)
            broken = "threads wait for others that don't come";
}

// `kernel` on a grid. Returns what is wrong, or null.
template <class Arguments>
const char *run_grid(void (*kernel)(Arguments), const void *arguments, u32 x, u32 y, u32 count, int is_late) {
    static void (*called)(Arguments);
    static Arguments given;
    called = kernel, late = is_late, broken = nullptr, blockDim = {count, 1, 1};
    memcpy((void *)&given, arguments, sizeof given);
    body = [] { called(given); };
    for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < x && !broken; blockIdx.x++)
            run_block(count);
    return broken;
}
