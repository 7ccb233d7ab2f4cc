// Rows of quantised matrices as bf16: all of them, or those of tokens.
#pragma once

#include "ptx.h"
#include "quants.h"
#include "rings.h"

struct Decoded {
    const u8 *weights;
    const int *tokens, *slots, *last;  // of decode_rows
    u16 *y;                            // bf16 [rows, columns of a split], one split behind the other
    int rows, columns, tiles, splits;
};

// Bands as bf16 rows; a warp a tile.
template <class Type> DEVICE void decode_bands(const Decoded &p) {
    constexpr int ROW_WORDS = TILE_COLUMNS / 2 + 4;  // four more, so that the lanes of a warp write to 32 banks
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tile = blockIdx.y * (blockDim.x / 32) + warp;
    u32 *mine = (u32 *)room + warp * BAND * ROW_WORDS;
    wait_for_earlier_kernels();
    let_later_kernels_start();
    if (tile >= p.tiles)
        return;
    for (int half = 0; half < 2; half++) {
        Type quants;
        quants.load(p.weights + ((i64)blockIdx.x * p.tiles + tile) * Type::BYTES, half, lane);
#pragma unroll
        for (int step = 0; step < 8; step++) {
            u32 *at = mine + lane / 4 * ROW_WORDS + (half * 8 + step) * 8 + lane % 4;
            pairs(quants, step, at[0], at[4]);
        }
    }
    __syncwarp();
    int split = ((tile + 1) * p.splits - 1) / p.tiles, begin = split_begin(p.tiles, p.splits, split) * TILE_COLUMNS;
    int end = split_begin(p.tiles, p.splits, split + 1) * TILE_COLUMNS;
    int width = (end < p.columns ? end : p.columns) - begin;
    int column = tile * TILE_COLUMNS + lane * 8 - begin, first = blockIdx.x * BAND;
    u16 *y = p.y + (i64)begin * p.rows;
    if (column < width)
        for (int row = 0; row < BAND && first + row < p.rows; row++)
            *(uint4 *)(y + (i64)(first + row) * width + column) = *(const uint4 *)(mine + row * ROW_WORDS + lane * 4);
}

// Rows of a table by token; a token of -1 is the last one of the row's slot. A warp four tiles, eight lanes each.
template <class Type> DEVICE void decode_rows(const Decoded &p) {
    int row = blockIdx.x, lane = threadIdx.x, tile = blockIdx.y * 4 + lane / 8, half = lane / 4 % 2;
    wait_for_earlier_kernels();
    let_later_kernels_start();
    if (tile >= p.tiles)
        return;
    int token = p.tokens[row] < 0 ? p.last[p.slots[row]] : p.tokens[row];
    Type quants;
    quants.load(p.weights + ((i64)(token / BAND) * p.tiles + tile) * Type::BYTES, half, token % BAND * 4 + lane % 4);
#pragma unroll
    for (int step = 0; step < 8; step++) {
        int column = tile * TILE_COLUMNS + (half * 8 + step) * 16 + lane % 4 * 2;
        u32 *at = (u32 *)(p.y + (i64)row * p.columns + column);
        if (column < p.columns)
            pairs(quants, step, at[0], at[4]);
    }
}
