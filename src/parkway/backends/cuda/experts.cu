// Quantised experts' matrices times the few rows that each has: a block has one expert's rows and some bands.
#include "quantised.cu"

struct ExpertsProduct {
    Product first;     // of the first expert and place; its `rows` are nobody's
    const int *tiles;  // [.., 3]: expert, first place, how many
    const int *count;  // of tiles; blocks beyond it leave at once
    i64 expert_bytes;  // from one expert's matrix to the next
};

DEVICE Product product_of(const ExpertsProduct &p, const int *tile) {
    Product one = p.first;
    i64 expert = tile[0], place = tile[1];
    one.weights[0] += expert * p.expert_bytes, one.weights[1] += expert * p.expert_bytes;
    one.x += place * one.x_stride;
    one.y = (u8 *)one.y + place * one.outputs * (one.floats ? 4 : 2);
    if (one.bias)
        one.bias += expert * one.outputs;
    one.rows = tile[2];
    return one;
}

// Room for NARROW rows is enough for most; ROWS is as many as there may be.
template <class Type, int BANDS, int NARROW, int ROWS, int GROUP, int DEPTH>
DEVICE void multiply_experts(const ExpertsProduct &p) {
    wait_and_let_others_start(p.first);
    if ((int)blockIdx.y >= *p.count)
        return;
    Product one = product_of(p, p.tiles + 3 * blockIdx.y);
    if (one.rows <= NARROW)
        multiply_rows<Type, BANDS, NARROW, GROUP, DEPTH, false, OneWarp<NARROW>>(one);
    else if (ROWS > NARROW)
        multiply_rows<Type, BANDS, ROWS, GROUP, DEPTH, false, OneWarp<ROWS>>(one);
}
