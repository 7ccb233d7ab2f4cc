// Sampling: temperature has been applied; then top_k, top_p and min_p in that order, on candidates by falling weight, ties by
// rising id. Randomness is a counter, so a token is a function of (row, seed, prompt, choice, position) alone.
#include "choose.h"

#include <algorithm>
#include <cmath>
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

double pk_uniform(const pk_sample *how, uint32_t draw) {
    const uint32_t counter[4] = {(uint32_t)how->position, (uint32_t)how->choice_index, (uint32_t)how->prompt_index, draw};
    const uint32_t key[2] = {(uint32_t)how->seed, (uint32_t)(how->seed >> 32)};
    uint32_t words[4];
    pk_philox(counter, key, words);
    return (double)((((uint64_t)words[0] << 32) | words[1]) >> 11) * 0x1p-53;
}

namespace {

constexpr int64_t BLOCK = 64;  // weights of a large vocabulary that are passed over side by side

struct Heavier {
    const float *weights;
    bool operator()(int32_t a, int32_t b) const { return weights[a] > weights[b] || (weights[a] == weights[b] && a < b); }
};

bool any_above(const float *x, int64_t count, float bound) {
    int found = 0;
    for (int64_t i = 0; i < count; i++) found |= x[i] > bound;
    return found;
}

float largest_of(const float *x, int64_t count) {
    float lanes[8];
    std::fill(lanes, lanes + 8, -INFINITY);
    const int64_t whole = count / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8)
        for (int64_t j = 0; j < 8; j++) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (int64_t i = whole; i < count; i++) lanes[0] = std::max(lanes[0], x[i]);
    return *std::max_element(lanes, lanes + 8);
}

// The ids of weights of at least `least`, rising; returns how many.
int64_t at_least(const float *weights, int64_t count, float least, int32_t *ids) {
    const float bound = std::nextafter(least, -INFINITY);
    int64_t kept = 0;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t end = std::min(first + BLOCK, count);
        if (!any_above(weights + first, end - first, bound)) continue;
        for (int64_t i = first; i < end; i++) {
            ids[kept] = (int32_t)i;
            kept += weights[i] > bound;
        }
    }
    return kept;
}

// Sorts the `wanted` heaviest ids to the front.
void sort_front(int32_t *ids, int64_t count, int64_t wanted, Heavier heavier) {
    if (wanted < count) std::nth_element(ids, ids + wanted, ids + count, heavier);
    std::sort(ids, ids + wanted, heavier);
}

// The `wanted` heaviest ids, sorted. Of equal ones the lower id is the heavier, so what comes later must be above.
int64_t heaviest(const float *weights, int64_t count, int64_t wanted, int32_t *ids) {
    const int64_t most = 2 * std::max(wanted, BLOCK);
    float bound = -INFINITY;
    int64_t kept = 0;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t end = std::min(first + BLOCK, count);
        if (!any_above(weights + first, end - first, bound)) continue;
        for (int64_t i = first; i < end; i++) {
            ids[kept] = (int32_t)i;
            kept += weights[i] > bound;
        }
        if (kept < most) continue;
        std::nth_element(ids, ids + wanted - 1, ids + kept, Heavier{weights});
        kept = wanted;
        bound = weights[ids[wanted - 1]];
    }
    sort_front(ids, kept, std::min(kept, wanted), Heavier{weights});
    return std::min(kept, wanted);
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

double sum_of(const float *weights, int64_t count) {
    double lanes[8] = {0}, total = 0;
    const int64_t whole = count / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8)
        for (int64_t j = 0; j < 8; j++) lanes[j] += weights[i + j];
    for (int64_t j = 0; j < 8; j++) total += lanes[j];
    for (int64_t i = whole; i < count; i++) total += weights[i];
    return total;
}

double sum_of(const float *weights, const int32_t *ids, int64_t count) {
    double total = 0;
    for (int64_t i = 0; i < count; i++) total += weights[ids[i]];
    return total;
}

// Of the candidates in their order, the one in which the draw falls. Rounding may let it fall behind the last.
int32_t draw(const pk_sample *how, const float *weights, const int32_t *ids, int64_t count) {
    const double target = pk_uniform(how, how->draw) * sum_of(weights, ids, count);
    double mass = 0;
    int32_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        if (weights[ids[i]] <= 0) continue;
        last = ids[i];
        mass += weights[last];
        if (mass > target) return last;
    }
    return last;
}

// The same of all tokens by rising id.
int32_t draw_of_all(const pk_sample *how, const float *weights, int64_t count) {
    const double target = pk_uniform(how, how->draw) * sum_of(weights, count);
    double mass = 0;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t end = std::min(first + BLOCK, count);
        const double block = sum_of(weights + first, end - first);
        double walked = mass;
        for (int64_t i = first; i < end && mass + block > target; i++)
            if ((walked += weights[i]) > target && weights[i] > 0) return (int32_t)i;
        mass += block;
    }
    while (count > 1 && !(weights[count - 1] > 0)) count--;
    return (int32_t)(count - 1);
}

// What candidates of top_p must weigh at least: all that are lighter weigh together half of what it leaves out, so it is
// reached without them.
float least_of_nucleus(const pk_sample *how, int64_t count, double total) {
    return how->top_p < 1 ? (float)((1 - (double)how->top_p) * total / (double)(2 * count)) : 0;
}

}  // namespace

int32_t pk_choose(const pk_sample *how, const float *weights, int64_t count, int32_t *ids) {
    if (how->top_k <= 0 && how->top_p >= 1 && how->min_p <= 0) return draw_of_all(how, weights, count);
    const Heavier heavier{weights};
    const float least = how->min_p > 0 ? how->min_p * largest_of(weights, count) : 0;
    const bool narrow = how->top_k > 0 && how->top_k < count;
    int64_t kept, sorted = 0;
    double total;
    if (narrow) {
        kept = sorted = heaviest(weights, count, how->top_k, ids);
        total = sum_of(weights, ids, kept);
    } else {
        total = sum_of(weights, count);
        kept = at_least(weights, count, std::max(least, least_of_nucleus(how, count, total)), ids);
    }
    if (how->top_p < 1) kept = sorted = nucleus(ids, kept, sorted, total, how, heavier);
    kept = std::partition_point(ids, ids + kept, [&](int32_t id) { return weights[id] >= least; }) - ids;
    if (sorted == 0) std::sort(ids, ids + kept, heavier);
    return draw(how, weights, ids, kept);
}

void pk_most_probable(pk_sample *how, const float *logits, int64_t count) {
    int32_t *ids = how->top_ids;
    float bound = -INFINITY;
    int64_t kept = 0;
    for (int64_t first = 0; first < count; first += BLOCK) {
        const int64_t end = std::min(first + BLOCK, count);
        if (kept == how->top && !any_above(logits + first, end - first, bound)) continue;
        for (int64_t id = first; id < end; id++) {
            if (kept == how->top && !(logits[id] > bound)) continue;
            int64_t at = kept < how->top ? kept++ : kept - 1;
            for (; at > 0 && logits[id] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
            ids[at] = (int32_t)id;
            bound = logits[ids[kept - 1]];
        }
    }
}
