// Sampling: temperature has been applied; then top_k, top_p and min_p in that order, on candidates by falling weight, ties by
// rising id. Randomness is a counter, so a token is a function of (row, seed, prompt, choice, position) alone.
#include "choose.h"

#include <algorithm>
#include <numeric>

void pk_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        std::copy(next, next + 4, c);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    std::copy(c, c + 4, out);
}

// In [0, 1), 53 bits; draw 0 of the position.
static double uniform(const pk_sample *how) {
    const uint32_t counter[4] = {(uint32_t)how->position, (uint32_t)how->choice_index, (uint32_t)how->prompt_index, 0};
    const uint32_t key[2] = {(uint32_t)how->seed, (uint32_t)(how->seed >> 32)};
    uint32_t words[4];
    pk_philox(counter, key, words);
    return (double)((((uint64_t)words[0] << 32) | words[1]) >> 11) * 0x1p-53;
}

namespace {

struct Heavier {
    const float *weights;
    bool operator()(int32_t a, int32_t b) const { return weights[a] > weights[b] || (weights[a] == weights[b] && a < b); }
};

// Sorts the `wanted` heaviest ids to the front.
void sort_front(int32_t *ids, int64_t count, int64_t wanted, Heavier heavier) {
    if (wanted < count) std::nth_element(ids, ids + wanted, ids + count, heavier);
    std::sort(ids, ids + wanted, heavier);
}

// How many of the heaviest candidates top_p keeps: the fewest whose weight reaches top_p of the total. Sorts as far as needed.
int64_t nucleus(int32_t *ids, int64_t count, int64_t sorted, double total, const pk_sample *how, Heavier heavier) {
    const double wanted = total * how->top_p;
    double mass = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i == sorted) {
            const int64_t more = std::min(count - sorted, std::max<int64_t>(64, sorted * 7));
            sort_front(ids + sorted, count - sorted, more, heavier);
            sorted += more;
        }
        mass += heavier.weights[ids[i]];
        if (mass >= wanted) return i + 1;
    }
    return count;
}

int32_t draw(const pk_sample *how, const float *weights, const int32_t *ids, int64_t count, double total) {
    const double target = uniform(how) * total;
    double mass = 0;
    int32_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t id = ids ? ids[i] : (int32_t)i;
        if (weights[id] <= 0) continue;
        last = id;
        mass += weights[id];
        if (mass > target) return id;
    }
    return last;
}

double sum_of(const float *weights, const int32_t *ids, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++) total += weights[ids ? ids[i] : i];
    return total;
}

}  // namespace

int32_t pk_choose(const pk_sample *how, const float *weights, int64_t count, int32_t *ids) {
    if (how->top_k <= 0 && how->top_p >= 1 && how->min_p <= 0)
        return draw(how, weights, nullptr, count, sum_of(weights, nullptr, count));
    const Heavier heavier{weights};
    std::iota(ids, ids + count, 0);
    int64_t kept = how->top_k > 0 ? std::min<int64_t>(how->top_k, count) : count;
    int64_t sorted = how->top_k > 0 ? kept : 0;
    sort_front(ids, count, sorted, heavier);
    if (how->top_p < 1) {
        kept = nucleus(ids, kept, sorted, sum_of(weights, ids, kept), how, heavier);
        sorted = kept;
    }
    const float least = how->min_p * *std::max_element(weights, weights + count);
    const auto end = std::stable_partition(ids, ids + kept, [&](int32_t id) { return weights[id] >= least; });
    kept = end - ids;
    if (sorted == 0) std::sort(ids, ids + kept, heavier);
    return draw(how, weights, ids, kept, sum_of(weights, ids, kept));
}

void pk_most_probable(pk_sample *how, const float *logits, int64_t count) {
    int32_t *ids = how->top_ids;
    int64_t kept = 0;
    for (int32_t id = 0; id < count; id++) {
        if (kept == how->top && !(logits[id] > logits[ids[kept - 1]])) continue;
        int64_t at = kept < how->top ? kept++ : kept - 1;
        for (; at > 0 && logits[id] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = id;
    }
}
