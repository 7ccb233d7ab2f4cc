// The two ways to multiply decoded weights with activations in shared memory. Both add 16 columns at a time in rising
// order to one running sum, and round alike.
//
// Activations lie as 8 x 8 matrices of 128 bytes (8 rows by 8 columns), those of TOKENS rows side by side, then the
// next 8 columns; for OneWarp, if BY_ROW, row by row, X_PITCH bytes apart, which are in different banks. A word is 32 columns, two steps; `word` counts 0 … 7 within a tile, and `x` is where a tile begins.
#pragma once

#include "ptx.h"
#include "wgmma.h"

// The fragments of a word: of each pair of bands for each of two steps 16 weight rows by 16 columns over a warp's lanes.
template <int PAIRS> using Fragments = u32[PAIRS][2][4];

constexpr int X_PITCH = 512 + 16;

// One warp at a time, on every GPU since Ampere. If there are fewer than 8 ROWS they are read again in place of others.
template <int ROWS, bool BY_ROW = false> struct OneWarp {
    static constexpr int TOKENS = ROWS < 8 ? 8 : ROWS;
    static constexpr int ROW_STEP = BY_ROW ? X_PITCH : 16, COLUMNS_STEP = BY_ROW ? 16 : ROWS * 16;
    static DEVICE void make_room(int) {}
    static DEVICE void finish() {}

    // What a lane reads of a word lies so far behind its beginning.
    static DEVICE int lane_at() {
        int lane = threadIdx.x % 32;
        return kept(lane / 8 * COLUMNS_STEP + lane % 8 % ROWS * ROW_STEP);
    }

    template <int PAIRS>
    static DEVICE void multiply(float (&totals)[PAIRS][TOKENS / 8][4], const Fragments<PAIRS> (&a)[4], int word,
                                const u8 *x) {
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++) {
            u32 b[4];
            load_matrices(b, x + word * (4 * COLUMNS_STEP) + j * 128);
#pragma unroll
            for (int step = 0; step < 2; step++)
#pragma unroll
                for (int pair = 0; pair < PAIRS; pair++)
                    multiply_16x8(totals[pair][j], a[word % 4][pair][step], b[step * 2], b[step * 2 + 1]);
        }
    }
};

#ifdef HAS_WGMMA
// Four warps at once, which decode the next words meanwhile. Two words are a batch; fragments of two batches are kept.
template <int TOKENS> struct FourWarps {
    static DEVICE int lane_at() { return 0; }

    // Before the fragments of a word are written.
    static DEVICE void make_room(int word) {
        if (word % 2 == 0)
            wait_for_batches<1>();
    }

    // The totals may be read, the activations written over.
    static DEVICE void finish() {
        wait_for_batches<0>();
        show_to_matrix_unit();
    }

    template <int PAIRS>
    static DEVICE void multiply(float (&totals)[PAIRS][TOKENS / 8][4], const Fragments<PAIRS> (&a)[4], int word,
                                const u8 *x) {
        if (word % 2 == 0)
            return;
        u64 first = matrix_at(x, TOKENS * 16);
        open_batch();
#pragma unroll
        for (int step = 0; step < 4; step++)
#pragma unroll
            for (int pair = 0; pair < PAIRS; pair++)
                multiply_64(totals[pair], a[word % 4 - 1 + step / 2][pair][step % 2],
                            first + ((word - 1) * 4 + step * 2) * TOKENS);
        close_batch();
    }
};
#endif
