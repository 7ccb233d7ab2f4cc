// Linear layers to plant into a program: float activations and weights, a group of 16 outputs, blocks of 32 columns.
#include "abi.h"

template <class Order> static void linear(const pk_rows *x, int64_t rows, const uint8_t *weights, float *out, int64_t stride, Order order) {
    const int64_t blocks = x->k / 32;
    for (int64_t row = 0; row < rows; row++) {
        float sums[16] = {};
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t first = order(i, blocks) * 32;
            for (int64_t column = first; column < first + 32; column++)
                for (int lane = 0; lane < 16; lane++)
                    sums[lane] += ((const float *)weights)[column * 16 + lane] * x->f[row * x->k + column];
        }
        for (int lane = 0; lane < 16; lane++) out[row * stride + lane] = sums[lane];
    }
}

// Slow, but exact: the order of the sums is always the same, though not the one of Parkway's own kernel.
extern "C" void always_falling(const pk_rows *x, int64_t rows, const uint8_t *weights, float *out, int64_t stride) {
    linear(x, rows, weights, out, stride, [](int64_t i, int64_t blocks) { return blocks - 1 - i; });
}

// What must be found: one row is summed in rising order, several in falling order.
extern "C" void by_row_count(const pk_rows *x, int64_t rows, const uint8_t *weights, float *out, int64_t stride) {
    linear(x, rows, weights, out, stride, [rows](int64_t i, int64_t blocks) { return rows > 1 ? blocks - 1 - i : i; });
}
