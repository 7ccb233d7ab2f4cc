// What a warp of a quantised product has to do, and the rings through which its tiles and activations come.
#pragma once

#include "ptx.h"

constexpr int BAND = 8, TILE_COLUMNS = 256;

extern __shared__ __align__(128) u8 room[];

struct Product {
    const u8 *weights[2];  // the second one's bands are multiplied beside the first one's if `gated`
    const u16 *x;          // bf16 [rows, columns]
    const float *bias;     // [outputs] or null
    const u16 *residual;   // bf16 [rows, outputs] or null
    void *y;               // fp32 [rows, outputs] if `floats`, else bf16
    i64 x_stride, residual_stride;
    int rows, columns, outputs, tiles, splits;
    int gated;             // y = silu(x W0ᵀ) * (x W1ᵀ)
    int floats;
};

DEVICE int split_begin(int tiles, int splits, int split) { return (int)((u32)tiles * split / splits); }

// What a warp does. Of two matrices a warp with one band has but one: others have the other.
template <int BANDS, int GROUP, bool SERIAL> struct Task {
    int part, member;  // which columns of which matrix; which of the group's warps
    int owner;         // of the outputs' bands, as many as a warp has
    int matrix, tile, end, split_end;

    DEVICE Task(const Product &p) {
        int warp = threadIdx.x / 32;
        part = warp / GROUP, member = warp % GROUP, owner = blockIdx.x * GROUP + member;
        matrix = BANDS == 1 && part >= (SERIAL ? 1 : p.splits);
        int split = SERIAL ? 0 : part - matrix * p.splits;
        tile = split_begin(p.tiles, p.splits, split);
        split_end = split_begin(p.tiles, p.splits, split + 1);
        end = SERIAL ? p.tiles : split_end;
    }

    // Once its warps have come.
    DEVICE void meet_group() const {
        if (GROUP == 1)
            __syncwarp();
        else
            meet_some(part + 1, GROUP * 32);
    }
};

// A warp's tiles, on their way through shared memory.
template <class Type, int BANDS, int DEPTH> struct Ring {
    static constexpr int SLOT = BANDS * Type::BYTES;
    u8 *slots;
    const u8 *from[BANDS];  // where this lane's part of the next tile is

    template <class Task> DEVICE Ring(const Product &p, const Task &task, u8 *rings) {
        int last = (p.outputs - 1) / BAND;
        slots = kept(rings + threadIdx.x / 32 * (DEPTH * SLOT));
#pragma unroll
        for (int b = 0; b < BANDS; b++) {
            bool both = BANDS > 1 && p.gated;
            int band = both ? task.owner * (BANDS / 2) + b / 2 : task.owner * BANDS + b;
            i64 tile = (i64)(band < last ? band : last) * p.tiles + task.tile;
            from[b] = p.weights[both ? b % 2 : task.matrix] + tile * Type::BYTES + threadIdx.x % 32 * 16;
        }
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
