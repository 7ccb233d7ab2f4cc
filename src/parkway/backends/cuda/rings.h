// What a warp of a quantised product has to do, and the rings through which its tiles and activations come.
#pragma once

#include "matrix_unit.h"
#include "ptx.h"
#include "quants.h"

extern __shared__ __align__(128) u8 room[];

struct Product {
    const u8 *weights[2];  // the second one's bands are multiplied beside the first one's if `gated`
    const u16 *x;          // bf16 [rows, columns]
    const float *bias;     // [outputs] or null
    const u16 *residual;   // bf16 [rows, outputs] or null
    void *y;               // fp32 [rows, outputs] if `floats`, else bf16
    i64 x_stride, residual_stride;
    int rows, columns, outputs, tiles, splits;
    int gated;             // y = activation(x W0ᵀ) * (x W1ᵀ) where not 0; which
    int floats;
    int group, depth, window;  // of multiply_few: warps of a walker, tiles of a ring of weights, of one of activations
    int ahead;             // whether later kernels may come before this one has waited
};

DEVICE int split_begin(int tiles, int splits, int split) { return (int)((u32)tiles * split / splits); }

// What a warp does. Of two matrices a warp with one band has but one: others have the other.
template <int BANDS, bool SERIAL> struct Task {
    int part, member;  // which columns of which matrix; which of the group's warps
    int owner;         // of the outputs' bands, as many as a warp has
    int matrix, tile, end, split_end;

    DEVICE Task(const Product &p, int group) {
        int warp = threadIdx.x / 32;
        part = warp / group, member = warp % group, owner = blockIdx.x * group + member;
        matrix = BANDS == 1 && part >= (SERIAL ? 1 : p.splits);
        int split = SERIAL ? 0 : part - matrix * p.splits;
        tile = split_begin(p.tiles, p.splits, split);
        split_end = split_begin(p.tiles, p.splits, split + 1);
        end = SERIAL ? p.tiles : split_end;
    }

    // Where the warp's first tile of band b is.
    DEVICE const u8 *first_tile(const Product &p, int b, int tile_bytes) const {
        bool both = BANDS > 1 && p.gated;
        int band = both ? owner * (BANDS / 2) + b / 2 : owner * BANDS + b, last = (p.outputs - 1) / BAND;
        i64 at = (i64)(band < last ? band : last) * p.tiles + tile;
        return ((both ? b % 2 : matrix) ? p.weights[1] : p.weights[0]) + at * tile_bytes;
    }
};

// A warp's tiles, on their way through shared memory.
template <class Type, int BANDS, int DEPTH> struct Ring {
    static constexpr int SLOT = BANDS * Type::BYTES;
    u8 *slots;
    const u8 *from[BANDS];  // where this lane's part of the next tile is

    template <class Task> DEVICE Ring(const Product &p, const Task &task, u8 *rings) {
        slots = kept(rings + threadIdx.x / 32 * (DEPTH * SLOT));
#pragma unroll
        for (int b = 0; b < BANDS; b++)
            from[b] = task.first_tile(p, b, Type::BYTES) + threadIdx.x % 32 * 16;
    }

    // Starts to copy the next tile.
    DEVICE void fetch(int slot) {
        int lane_at = threadIdx.x % 32 * 16;
#pragma unroll
        for (int b = 0; b < BANDS; b++) {
            u8 *to = slots + slot * SLOT + b * Type::BYTES + lane_at;
#pragma unroll
            for (int at = 0; at < Type::BYTES; at += 512)
                if (at + 512 <= Type::BYTES || lane_at < Type::BYTES - at)
                    copy16(to + at, from[b] + at, true);
            from[b] += Type::BYTES;
        }
    }
};

// A group's activations, zeros past the last column. Rows that don't exist are not written: they make no output.
template <int ROWS, int GROUP, int DEPTH> struct Activations {
    static constexpr int SLOT = TILE_COLUMNS * ROWS * 2, NEAR = ROWS < 8 ? ROWS : 8;  // neighbouring threads' rows
    static constexpr int COPIERS = 32 * (GROUP < NEAR ? GROUP : NEAR);
    u8 *slots, *to;
    const u16 *from;
    int left, rows;  // columns from this thread's first one on; rows from its first one on

    template <class Task> DEVICE Activations(const Product &p, const Task &task, u8 *rings) {
        int i = threadIdx.x % 32 + task.member * 32, row = i % NEAR, column = task.tile * TILE_COLUMNS + i / NEAR * 8;
        slots = kept(rings + task.part * (DEPTH * SLOT));
        to = slots + i / NEAR * (ROWS * 16) + row * 16;
        from = p.x + row * p.x_stride + column;
        left = p.columns - column, rows = i < COPIERS ? p.rows - row : 0;
    }

    DEVICE void fetch(const Product &p, int slot) {
#pragma unroll
        for (int row = 0; row < ROWS; row += NEAR)
            if (row < rows)
#pragma unroll
                for (int column = 0; column < TILE_COLUMNS; column += COPIERS / NEAR * 8)
                    copy16_near(to + slot * SLOT + column * (ROWS * 2) + row * 16, from + row * p.x_stride + column,
                           column < left);
        from += TILE_COLUMNS, left -= TILE_COLUMNS;
    }
};

#ifdef HAS_BULK_COPIES
constexpr int BARRIERS = 16;  // bytes before what a slot holds

// Where a warp is in a ring, in bytes; `turn` is 0 or 1 in turns.
template <int SLOT> struct Place {
    int end, slot = 0;
    u32 turn = 0;

    DEVICE explicit Place(int slots) : end(slots * SLOT) {}

    DEVICE int before() const { return (slot ? slot : end) - SLOT; }

    DEVICE void advance() {
        slot += SLOT;
        if (slot == end)
            slot = 0, turn ^= 1;
    }
};

// A warp's tiles, each a bulk copy, which one lane asks for. A slot begins with its barrier.
template <class Type, int BANDS> struct BulkRing {
    static constexpr int SLOT = BARRIERS + BANDS * Type::BYTES, NEXT = 4;
    u8 *slots;
    int depth;
    const u8 *from[BANDS];

    template <class Task>
    DEVICE BulkRing(const Product &p, const Task &task, u8 *rings)
        : slots(kept(rings + threadIdx.x / 32 * (p.depth * SLOT))), depth(p.depth) {
#pragma unroll
        for (int b = 0; b < BANDS; b++)
            from[b] = task.first_tile(p, b, Type::BYTES);
    }

    DEVICE u64 *full(int slot) const { return (u64 *)(slots + slot); }
    DEVICE u8 *tiles(int slot) const { return slots + slot + BARRIERS; }

    DEVICE void begin() const {
#pragma unroll 1
        for (int slot = 0; slot < depth; slot++)
            begin_barrier(full(slot * SLOT), 1);
    }

    // All but one slot; and the next few tiles are asked for, while memory has little else to do than to wait for the
    // kernels ahead.
    DEVICE void fill(int tiles) {
#pragma unroll 1
        for (int slot = 0; slot < depth - 1 && slot < tiles; slot++)
            fetch(slot * SLOT);
        int more = tiles - (depth - 1) < NEXT ? tiles - (depth - 1) : NEXT;
        if (more > 0)
#pragma unroll
            for (int b = 0; b < BANDS; b++)
                prefetch_bulk(from[b], more * Type::BYTES);
    }

    DEVICE void fetch(int slot) {
        arrive_expecting(full(slot), BANDS * Type::BYTES);
#pragma unroll
        for (int b = 0; b < BANDS; b++) {
            copy_bulk(tiles(slot) + b * Type::BYTES, from[b], Type::BYTES, full(slot));
            from[b] += Type::BYTES;
        }
    }
};

// Activations of a split's columns, for all warps of the block that walk them: a ring `window` tiles long. Its slots are
// filled by all; if there are more tiles than slots, the first warp then fetches the others. One lane of a warp calls.
template <int ROWS> struct Window {
    static constexpr int SLOT = BARRIERS + ROWS * X_PITCH;
    u8 *slots;
    int window, slack, next, end;
    Place<SLOT> free;

    template <class Task>
    DEVICE Window(const Product &p, const Task &task, u8 *rings)
        : slots(kept(rings + task.part % p.splits * (p.window * SLOT))), window(p.window), slack((p.window - 1) / 2),
          next(task.tile + p.window), end(task.end), free(p.window) {}

    DEVICE u64 *full(int slot) const { return (u64 *)(slots + slot); }
    DEVICE u64 *empty(int slot) const { return full(slot) + 1; }
    DEVICE u8 *rows(int slot) const { return slots + slot + BARRIERS; }

    DEVICE void begin(int warps) const {
#pragma unroll 1
        for (int slot = 0; slot < window; slot++)
            begin_barrier(full(slot * SLOT), 1), begin_barrier(empty(slot * SLOT), warps);
    }

    DEVICE void fill(const Product &p, int warp, int warps) const {
#pragma unroll 1
        for (int slot = warp; slot < window && next - window + slot < end; slot += warps)
            fetch(p, next - window + slot, slot * SLOT);
    }

    // Rows that don't exist are not written: they make no output. Behind the last column are zeros.
    DEVICE void fetch(const Product &p, int tile, int slot) const {
        int count = p.rows < ROWS ? p.rows : ROWS, width = p.columns - tile * TILE_COLUMNS;
        int bytes = 2 * (width < TILE_COLUMNS ? width : TILE_COLUMNS);
        u8 *to = rows(slot);
#pragma unroll 1
        for (int at = bytes; at < 2 * TILE_COLUMNS; at += 16)
#pragma unroll 1
            for (int row = 0; row < count; row++)
                *(uint4 *)(to + row * X_PITCH + at) = make_uint4(0, 0, 0, 0);
        arrive_expecting(full(slot), count * bytes);
#pragma unroll 1
        for (int row = 0; row < count; row++)
            copy_bulk(to + row * X_PITCH, p.x + row * p.x_stride + tile * TILE_COLUMNS, bytes, full(slot));
    }

    DEVICE bool is_short() const { return next < end; }

    // The warp has done with a slot. The next tile comes to where those that are `slack` tiles behind have been.
    DEVICE void leave(const Product &p, int slot, bool fetches) {
        arrive(empty(slot));
        if (!fetches || slack-- > 0)
            return;
        wait_for_barrier(empty(free.slot), free.turn);
        fetch(p, next++, free.slot);
        free.advance();
    }
};
#endif
