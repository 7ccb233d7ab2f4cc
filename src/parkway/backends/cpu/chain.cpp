// A chain of samplers, as backends/reference_sampler.py specifies each. What is left is always a run of the candidates by
// falling logit, equal ones by rising id. They are sorted only as far as somebody has to look. Sums are of doubles.
#include "chain.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "choose.h"

namespace {

constexpr double GREEDY_BELOW = 1e-5;
constexpr int64_t MIROSTAT_TOKENS = 100;
constexpr double LN2 = 0x1.62e42fefa39efp-1;

// e to a power that is not positive. Not the C library's, whose bits depend on the machine.
double exp_of(double x) {
    if (!(x > -708)) return 0;
    const double n = std::floor(x * (1 / LN2) + 0.5);
    const double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    double y = 1.0 / 6227020800;
    for (const double c : {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                           1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0})
        y = y * r + c;
    const uint64_t bits = (uint64_t)(1023 + (int64_t)n) << 52;
    double power;
    std::memcpy(&power, &bits, sizeof power);
    return y * power;
}

// Larger for a larger logit and, of equal ones, for a lower id.
uint64_t key_of(float logit, int64_t id) {
    uint32_t bits;
    if (logit == 0) logit = 0;  // both zeros are one
    std::memcpy(&bits, &logit, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (UINT32_MAX - (uint32_t)id);
}

struct Sums {
    double weights, weighted;  // of exp(x), and of exp(x) * x, where x is 0 for the largest
    double log_weights() const { return std::log(weights); }
    double entropy() const { return log_weights() - weighted / weights; }
};

// Keys from `first` to `end` are left, of which those before `sorted` are in order and above the others.
struct Candidates {
    uint64_t *keys;
    int64_t vocabulary, first, end, sorted;
    double scale;  // what logits are multiplied with

    int64_t count() const { return end - first; }
    int32_t id(int64_t i) const { return (int32_t)(UINT32_MAX - (uint32_t)keys[i]); }

    double logit(int64_t i) const {
        uint32_t bits = (uint32_t)(keys[i] >> 32);
        float x;
        bits = bits >> 31 ? bits & 0x7fffffffu : ~bits;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    }

    void sort_to(int64_t wanted) {
        if (wanted <= sorted) return;
        const int64_t to = std::min(end, std::max({wanted, sorted + 64, first + 8 * (sorted - first)}));
        if (to < end) std::nth_element(keys + sorted, keys + to, keys + end, std::greater<>());
        std::sort(keys + sorted, keys + to, std::greater<>());
        sorted = to;
    }

    double x(int64_t i) const {  // 0 for the largest, also where that is infinite; sorted to the first at least
        const double top = logit(first), y = logit(i);
        return y == top ? 0 : (y - top) * scale;
    }

    double sorted_x(int64_t i) {
        sort_to(i + 1);
        return x(i);
    }

    Sums sums() {
        sort_to(first + 1);
        Sums all = {0, 0};
        for (int64_t i = first; i < end; i++) {
            const double y = x(i), weight = exp_of(y);
            all.weights += weight;
            if (weight > 0) all.weighted += weight * y;
        }
        return all;
    }

    void keep(double wanted) {  // of the largest; one at least
        const int64_t n = wanted >= 1 ? wanted < count() ? (int64_t)wanted : count() : 1;
        if (first + n > sorted && first + n < end) std::nth_element(keys + sorted, keys + first + n, keys + end, std::greater<>());
        end = first + n;
        sorted = std::min(sorted, end);
    }
};

void temperature(Candidates *left, double about, double span, double exponent) {
    if (span > 0 && left->count() > 1) {
        const double flatness = left->sums().entropy() / std::log((double)left->count());
        const double low = std::max(0.0, about - span), high = about + span;
        about = low + (high - low) * std::pow(std::max(flatness, 0.0), exponent);
    }
    if (about < GREEDY_BELOW) left->keep(1);
    else left->scale /= about;
}

void top_p(Candidates *left, double p) {
    const double wanted = p * left->sums().weights;
    double mass = 0;
    int64_t i = left->first;
    while (i < left->end && (mass += exp_of(left->sorted_x(i))) < wanted) i++;
    left->keep(i - left->first + 1);
}

template <class Test>
void keep_while(Candidates *left, Test test) {  // of those that pass, which are the largest
    left->sort_to(left->first + 1);
    int64_t n = 0;
    for (int64_t i = left->first; i < left->end; i++) n += test(i);
    left->keep(n);
}

void top_n_sigma(Candidates *left, double n) {
    left->sort_to(left->first + 1);
    double sum = 0, squares = 0;
    for (int64_t i = left->first; i < left->end; i++) sum += left->x(i);
    const double mean = sum / left->count();
    for (int64_t i = left->first; i < left->end; i++) squares += (left->x(i) - mean) * (left->x(i) - mean);
    const double least = -n * std::sqrt(squares / left->count());
    keep_while(left, [&](int64_t i) { return left->x(i) >= least; });
}

// From where surprise crosses the entropy to both sides, until there is enough and no other is as near as the last.
void typical(Candidates *left, double p) {
    const Sums all = left->sums();
    const double log_weights = all.log_weights(), entropy = all.entropy(), wanted = p * all.weights;
    const auto surprise = [&](int64_t i) { return log_weights - left->sorted_x(i); };
    int64_t begin = left->first;
    while (begin < left->end && surprise(begin) < entropy) begin++;
    int64_t end = begin;
    double mass = 0, far = 0;
    while (begin > left->first || end < left->end) {
        const double above = begin > left->first ? std::fabs(surprise(begin - 1) - entropy) : INFINITY;
        const double below = end < left->end ? std::fabs(surprise(end) - entropy) : INFINITY;
        if (mass > wanted && std::min(above, below) > far) break;
        far = std::min(above, below);
        mass += exp_of(left->x(above <= below ? --begin : end++));
    }
    left->first = begin;
    left->end = end;
    left->sorted = std::min(left->sorted, end);
}

void xtc(Candidates *left, const pk_sample *how, double probability, double threshold) {
    if (left->count() < 2 || !(pk_uniform(how, 1) < probability)) return;
    const double least = threshold * left->sums().weights;
    int64_t above = 0;
    while (above < left->count() && exp_of(left->sorted_x(left->first + above)) >= least) above++;
    if (above > 1) left->first += above - 1;
}

void mirostat(Candidates *left, double mu) {
    const int64_t n = std::min(MIROSTAT_TOKENS, left->count()) - 1;
    double products = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        const double t = std::log((i + 2.0) / (i + 1.0)), x = left->sorted_x(left->first + i);
        products += t * (x - left->sorted_x(left->first + i + 1));
        squares += t * t;
    }
    const double s = products / squares, many = (double)left->vocabulary;
    left->keep(std::pow((s - 1) * std::pow(2, mu) / (1 - std::pow(many, 1 - s)), 1 / s));
}

void mirostat_2(Candidates *left, double mu) {
    const double log_weights = left->sums().log_weights();
    keep_while(left, [&](int64_t i) { return (log_weights - left->x(i)) / LN2 <= mu; });
}

void take(Candidates *left, const pk_sample *how, const pk_chain_step *step) {
    switch (step->kind) {
        case PK_TEMPERATURE: return temperature(left, step->a, step->b, step->c);
        case PK_TOP_K: return left->keep(step->a);
        case PK_TOP_P: return top_p(left, step->a);
        case PK_MIN_P: return keep_while(left, [&](int64_t i) { return exp_of(left->x(i)) >= step->a; });
        case PK_TOP_N_SIGMA: return top_n_sigma(left, step->a);
        case PK_TYPICAL: return typical(left, step->a);
        case PK_XTC: return xtc(left, how, step->a, step->b);
        case PK_MIROSTAT: return mirostat(left, step->a);
        case PK_MIROSTAT_2: return mirostat_2(left, step->a);
    }
}

}  // namespace

int32_t pk_walk(pk_sample *how, const float *logits, int64_t count, uint64_t *keys) {
    Candidates left = {keys, count, 0, 0, 0, 1};
    for (int64_t id = 0; id < count; id++)
        if (logits[id] > -INFINITY) keys[left.end++] = key_of(logits[id], id);
    if (left.end == 0) return -1;
    for (int64_t i = 0; i < how->edits.steps; i++) take(&left, how, how->edits.chain + i);
    const Sums all = left.sums();
    const double target = pk_uniform(how, 0) * all.weights;
    double mass = 0;
    int64_t chosen = left.first;
    for (int64_t i = left.first; i < left.end && mass <= target; i++) {
        const double weight = exp_of(left.sorted_x(i));
        if (weight <= 0) break;
        mass += weight;
        chosen = i;
    }
    how->surprise = (all.log_weights() - left.x(chosen)) / LN2;
    return left.id(chosen);
}
