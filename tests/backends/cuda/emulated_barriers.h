// Barriers in shared memory and the bulk copies that tell them, the twins of those in ptx.h; part of emulated.h.
#pragma once

struct BulkCopy { u8 *to; const void *from; u32 bytes; };
struct Barrier { int count, missing; i64 bytes = 0; u32 times = 0; std::vector<BulkCopy> late; };
static std::map<const u64 *, Barrier> barriers;

inline void begin_barrier(u64 *barrier, int count) { barriers[barrier] = {count, count}; }
inline void show_barriers() {}

inline Barrier &begun(u64 *barrier) {
    if (!barriers.count(barrier))
        broken = "a barrier has not begun";
    return barriers[barrier];
}

// What was promised has arrived, and everybody has come.
inline void pass(Barrier &barrier) {
    if (barrier.missing == 0 && barrier.bytes == 0)
        barrier.times++, barrier.missing = barrier.count, moved = true;
}

inline void arrive_expecting(u64 *at, u32 bytes) {
    Barrier &barrier = begun(at);
    barrier.bytes += bytes, barrier.missing--;
    if (barrier.missing < 0)
        broken = "too many arrive at a barrier";
    pass(barrier);
}

inline void arrive(u64 *at) { arrive_expecting(at, 0); }

inline void run(Barrier &barrier, const BulkCopy &copy) {
    memcpy(copy.to, copy.from, copy.bytes);
    barrier.bytes -= copy.bytes;
    pass(barrier);
}

inline void copy_bulk(void *to, const void *from, u32 bytes, u64 *at) {
    if (bytes % 16 || (u64)to % 16 || (u64)from % 16)
        broken = "a bulk copy is not of whole 16 bytes";
    BulkCopy copy{(u8 *)to, from, bytes};
    late ? begun(at).late.push_back(copy) : run(begun(at), copy);
}

inline void prefetch_bulk(const void *, u32) {}

inline void wait_for_barrier(u64 *at, u32 times) {
    Barrier &barrier = begun(at);
    while (barrier.times % 2 == times) {
        if (broken)
            return;
        std::vector<BulkCopy> late;
        if (barrier.missing == 0)
            late.swap(barrier.late);
        for (const BulkCopy &copy : late)
            run(barrier, copy);
        if (barrier.times % 2 == times) {
            u32 self = threadIdx.x;
            swapcontext(&threads[self].state, &scheduler);
        }
    }
}
