// Experts' bf16 matrices times the few rows that each has. An item is 16 rows of weights, 8 of either matrix if there
// are two, times the places of a tile, ROWS at most. A warp has items of its own, which come one behind the other, 256
// columns at a time, through a ring DEPTH steps long: memory never waits for the end of an item, nor a warp for another.
//
// Each output is one running fp32 sum over ascending columns, 16 at a time, as in the other kernels for experts. Which
// warp has which item, and how long rings are: no output depends on it.
#include "gates.h"
#include "rings.h"

struct FewRows {
    const u16 *weights[2];  // bf16 [experts * outputs, columns]; the second one's only if GATED
    const float *bias[2];   // [experts, outputs] or null
    const u16 *x;           // bf16 [.., columns]
    const int *row_of;      // of a place; null: its own
    const int *tiles;       // [.., 3]: expert, first place, how many
    const int *count;       // of tiles
    u16 *y;                 // bf16 [places, outputs]
    i64 x_stride;
    int columns, outputs, blocks;
    int gated;   // which activation
    int listed;  // whether the tiles were there before the kernel ahead began
    int likely;  // experts of which most have rows: the first ones' weights are asked for before the tiles are there
    int asked;   // so many bytes of each row
};

constexpr int TALL = 16;

template <bool GATED> DEVICE int bands_of(const FewRows &p) {
    constexpr int OUTPUTS = GATED ? TALL / 2 : TALL;
    return (p.outputs + OUTPUTS - 1) / OUTPUTS;
}

// What a tile's list says of an item, and which of the expert's outputs it is.
struct Item {
    int expert, first, held, band;

    DEVICE Item(const FewRows &p, int number, int bands) : band(number % bands) {
        const int *tile = p.tiles + number / bands * 3;
        expert = read_fresh(tile), first = read_fresh(tile + 1), held = read_fresh(tile + 2);
    }
};

// The items of a warp that are not fetched yet. A lane copies 8 columns of each row of weights, and of one row of x.
template <int ROWS, bool GATED> struct Feed {
    static constexpr int SLOT = (TALL + ROWS) * X_PITCH, PIECE = TILE_COLUMNS / ROWS;  // columns of x at once
    int number, items, stride, bands;
    int column = 0, output;  // of the item that is being fetched: where it is, its first output
    const u16 *first, *second;  // the expert's matrices, at this lane's columns
    const u16 *x;               // this lane's row, or null
    Item next;                  // asked for early: nobody waits for the list
    const u16 *next_x = nullptr;

    DEVICE Feed(const FewRows &p, int number, int items, int stride)
        : number(number), items(items), stride(stride), bands(bands_of<GATED>(p)), next(p, number, bands) {
        look_up(p);
        take(p);
    }

    DEVICE void look_up(const FewRows &p) {
        int place = threadIdx.x % ROWS;
        next_x = nullptr;
        if (place < next.held) {
            i64 row = p.row_of ? read_fresh(p.row_of + next.first + place) : next.first + place;
            next_x = p.x + row * p.x_stride + threadIdx.x % 32 / ROWS * 8;
        }
    }

    DEVICE void take(const FewRows &p) {
        i64 at = (i64)next.expert * p.outputs * p.columns + threadIdx.x % 32 * 8;
        first = p.weights[0] + at, second = p.weights[GATED] + at;
        output = next.band * (GATED ? TALL / 2 : TALL), x = next_x;
        if (number + stride < items)
            next = Item(p, number + stride, bands);
    }

    // Starts to copy the next step. Columns past the last are zeros; outputs past the last are the last, and not stored.
    DEVICE void fetch_weights(const FewRows &p, u8 *slot) const {
        int lane = threadIdx.x % 32;
        if (number >= items)
            return;
#pragma unroll
        for (int row = 0; row < TALL; row++) {
            int mine = output + (GATED ? row % 8 : row), last = p.outputs - 1;
            const u16 *from = (GATED && row >= 8 ? second : first) + (i64)(mine < last ? mine : last) * p.columns;
            copy16(slot + row * X_PITCH + lane * 16, from + column, column + lane * 8 < p.columns);
        }
    }

    DEVICE void fetch_x(const FewRows &p, u8 *slot) const {
        int lane = threadIdx.x % 32;
        u8 *to = slot + (TALL + lane % ROWS) * X_PITCH + lane / ROWS * 16;
        if (x && number < items)
#pragma unroll
            for (int at = 0; at < TILE_COLUMNS; at += PIECE)
                copy16_near(to + at * 2, x + column + at, column + at + lane / ROWS * 8 < p.columns);
    }

    DEVICE void advance(const FewRows &p) {
        column += TILE_COLUMNS;
        if (column == TILE_COLUMNS)
            look_up(p);
        if (column >= p.columns)
            number += stride, column = 0, take(p);
    }
};

// Has the beginning of an item brought into the cache that all share, as if each expert had one tile.
template <bool GATED> DEVICE void ask(const FewRows &p, int number, int bands) {
#ifdef HAS_BULK_COPIES
    int lane = threadIdx.x % 32, expert = number / bands;
    if (lane >= TALL || expert >= p.likely || p.columns * 2 < p.asked)
        return;
    int output = number % bands * (GATED ? TALL / 2 : TALL) + (GATED ? lane % 8 : lane);
    if (output < p.outputs)
        prefetch_bulk(p.weights[GATED && lane >= 8] + ((i64)expert * p.outputs + output) * p.columns, p.asked);
#endif
}

template <bool GATED> DEVICE void store_item(const FewRows &p, const Item &item, const float (&total)[4]) {
    int lane = threadIdx.x % 32, output = item.band * (GATED ? TALL / 2 : TALL) + lane / 4;
#pragma unroll
    for (int i = 0; i < (GATED ? 2 : 4); i++) {
        int place = lane % 4 * 2 + i % 2, mine = output + i / 2 * 8;
        if (place >= item.held || mine >= p.outputs)
            continue;
        i64 biased = (i64)item.expert * p.outputs + mine;
        float value = p.bias[0] ? __fadd_rn(total[i], p.bias[0][biased]) : total[i];
        if (GATED) {
            float up = p.bias[1] ? __fadd_rn(total[2 + i % 2], p.bias[1][biased]) : total[2 + i % 2];
            value = product(p.gated, value, up);
        }
        p.y[(i64)(item.first + place) * p.outputs + mine] = (u16)to_bf16_pair(value, 0);
    }
}

template <int ROWS, int DEPTH, bool GATED> DEVICE void multiply_few_rows(const FewRows &p) {
    constexpr int SLOT = Feed<ROWS, GATED>::SLOT;
    int warp = threadIdx.x / 32, warps = blockDim.x / 32, bands = bands_of<GATED>(p);
    int number = blockIdx.x * warps + warp, stride = p.blocks * warps;  // neighbours' rows of x are often the same
    ask<GATED>(p, number, bands);
    if (!p.listed)
        wait_for_earlier_kernels();
    int items = read_fresh(p.count) * bands;
    if (number >= items) {
        wait_for_earlier_kernels();
        return;
    }
    u8 *slots = kept(room + warp * (DEPTH * SLOT));
    Feed<ROWS, GATED> feed(p, number, items, stride), ahead = feed;
#pragma unroll
    for (int slot = 0; slot < DEPTH - 1; slot++) {
        ahead.fetch_weights(p, slots + slot * SLOT);
        ahead.advance(p);
    }
    wait_for_earlier_kernels();
    let_later_kernels_start();
#pragma unroll
    for (int slot = 0; slot < DEPTH - 1; slot++) {
        feed.fetch_x(p, slots + slot * SLOT);
        feed.advance(p);
        close_group();
    }
    int lane = threadIdx.x % 32, slot = 0;
    int weights_at = lane % 16 * X_PITCH + lane / 16 * 16, x_at = TALL * X_PITCH + OneWarp<ROWS, true>::lane_at();
    for (; number < items; number += stride) {
        Item item(p, number, bands);
        float total[4] = {};
        for (int column = 0; column < p.columns; column += TILE_COLUMNS) {
            wait_for_groups<DEPTH - 2>();
            __syncwarp();
            u8 *free = slots + (slot == 0 ? DEPTH - 1 : slot - 1) * SLOT;
            feed.fetch_weights(p, free);
            feed.fetch_x(p, free);
            feed.advance(p);
            close_group();
            multiply_step(total, slots + slot * SLOT + weights_at, slots + slot * SLOT + x_at);
            slot = slot == DEPTH - 1 ? 0 : slot + 1;
        }
        store_item<GATED>(p, item, total);
    }
}
